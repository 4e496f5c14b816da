// The engine on ranks that are threads, against the reference's dense step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "optimized/engine/engine.hpp"
#include "optimized/engine/footprint.hpp"
#include "optimized/engine/threads.hpp"
#include "reference/core/error.hpp"
#include "reference/executor/dense.hpp"
#include "reference/model/shard.hpp"
#include "tests/backend.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

constexpr int kIterations = 3;

reference::Objective<float> recurring() {
  reference::Objective<float> objective(1);
  objective.recur(2);
  return objective;
}

Workload workload_of(Mesh mesh, const std::string& strategy, const std::string& optimizer) {
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", mesh, strategy, optimizer);
  request.bucket_size = 32768;
  request.training.clip_norm = 1;
  return make_workload(request);
}

/// Every rank's model weights after some iterations.
std::vector<std::vector<float>> trained(const Workload& workload, const EngineSettings& settings,
                                        const reference::Objective<float>& objective = recurring(),
                                        int iterations = kIterations) {
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(workload.mesh.ranks()));
  run_on_threads(workload.mesh, 60, testing_support::backend(), [&](Rank& rank) {
    auto& engine = rank.make<Engine>(workload, rank, objective, settings);
    for (int iteration = 0; iteration < iterations; ++iteration) engine.iterate();
    engine.finish();
    weights[static_cast<std::size_t>(rank.index)] = engine.weights();
  });
  return weights;
}

/// The worst over parameters and ranks of ‖W − W_ref‖ over how far one device moved the parameter.
double worst_error(const Workload& workload, const std::vector<std::vector<float>>& weights,
                   const reference::Objective<float>& objective = recurring()) {
  const reference::Precision precision = reference::make_precision(DType::fp32, DType::fp32);
  reference::DenseReference<float> dense(workload, precision, objective);
  reference::DenseReference<float> still(workload, precision, objective);
  dense.run(kIterations);
  double worst = 0;
  for (const Slot& slot : workload.buffer.slots) {
    const Parameter& parameter = workload.model.parameters[slot.parameter];
    const double moved = (dense.weights(slot.parameter) - still.weights(slot.parameter)).norm();
    Matrix<float> whole(parameter.shape.rows, parameter.shape.cols);
    for (int dp_rank = 0; dp_rank < workload.mesh.dp; ++dp_rank) {
      for (int tp_rank = 0; tp_rank < workload.mesh.tp; ++tp_rank) {
        const auto& own = weights[static_cast<std::size_t>(workload.mesh.rank({dp_rank, tp_rank, 0}))];
        place_shard(own.data() + slot.elements.begin, parameter, workload.mesh.tp, tp_rank, whole);
      }
      const double error = (whole - dense.weights(slot.parameter)).norm() / moved;
      if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
    }
  }
  return worst;
}

// Newton–Schulz amplifies rounding by at most 3.4445⁵ = 485.
constexpr double kBound = 485 * std::numeric_limits<float>::epsilon();

TEST(Engine, EqualsOneDeviceUnderEveryStrategyAndMesh) {
  for (const EngineOptimizer& optimizer : EngineOptimizers::instance().all()) {
    // What refreshes preconditioners has no analytic bound: preconditioners_test.cpp derives one from its response.
    if (reference::Optimizers::instance().find(optimizer.name).refresh_cost) continue;
    for (const std::string& strategy : testing_support::strategy_names()) {
      const std::vector<Mesh> all{{2, 2}, {3, 1}, {1, 1}, {2, 1}, {1, 4}, {4, 2}, {16, 1}};
      for (const Mesh& mesh : std::span(all).first(testing_support::kIsSlow ? 1 : all.size())) {
        const Workload workload = workload_of(mesh, strategy, optimizer.name);
        const double bound = workload.optimizer->needs_whole_matrix ? kBound : 0;  // elementwise: the same expressions
        EXPECT_LE(worst_error(workload, trained(workload, {.tokens = {16, 8}})), bound)
            << optimizer.name << ' ' << strategy << ' ' << mesh.dp << " by " << mesh.tp;
      }
    }
  }
}

TEST(Engine, OverlapOnAndOffAreBitwiseEqual) {
  for (const std::string& strategy : testing_support::strategy_names()) {
    const Workload workload = workload_of({3, 2}, strategy, "muon");
    EXPECT_EQ(trained(workload, {.overlap = true}), trained(workload, {.overlap = false})) << strategy;
  }
}

// Where the backend has no graphs, as the host, asking for them changes nothing. The learning rate, the clipping factor
// and the step's number change from step to step, as do the forms of steps that refresh.
TEST(Engine, GraphsOnAndOffAreBitwiseEqual) {
  for (const EngineOptimizer& optimizer : EngineOptimizers::instance().all()) {
    for (const std::string& strategy : testing_support::strategy_names()) {
      WorkloadRequest request = testing_support::request_of("qwen3-tiny", {2, 2}, strategy, optimizer.name);
      request.bucket_size = 32768;
      request.training.clip_norm = 1;
      request.optimizer_options = {{"warmup_steps", "5"}};
      if (reference::Optimizers::instance().find(optimizer.name).refresh_cost)
        request.optimizer_options["precondition_frequency"] = "3";
      const Workload workload = make_workload(request);
      const auto with_graphs = trained(workload, {.graphs = true}, recurring(), 8);
      EXPECT_EQ(with_graphs, trained(workload, {.graphs = false}, recurring(), 8)) << optimizer.name << ' ' << strategy;
      if (testing_support::kIsSlow || !testing_support::backend().backend->has_graphs) break;
    }
  }
}

TEST(Engine, AllStrategiesAreBitwiseEqualToEachOther) {
  const auto expected = trained(workload_of({3, 2}, "synchronous", "muon"), {});
  for (const std::string& strategy : testing_support::strategy_names())
    EXPECT_EQ(trained(workload_of({3, 2}, strategy, "muon"), {}), expected) << strategy;
}

TEST(Engine, ManySmallMicroGroupsPipeline) {
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {2, 4}, "canzona");
  request.bucket_size = 32768;
  request.split = {BlockSplit::Qkv::per_head, true};
  request.strategy_options = {{"capacity", "1"}};
  const Workload workload = make_workload(request);
  ASSERT_GT(workload.plan.micro_groups[0].size(), 2u);
  EXPECT_LE(worst_error(workload, trained(workload, {})), kBound);
}

TEST(Engine, CountsWhatItSendsAndUpdates) {
  for (const char* strategy : {"synchronous", "layerwise", "static", "canzona"}) {
    const Workload workload = workload_of({4, 2}, strategy, "muon");
    // fp32 all through. All-gathers go straight to everyone here, a ring passes them on.
    const Traffic closed_form =
        traffic_of(workload.plan, workload.model, workload.buffer, {DType::fp32, DType::fp32, DType::fp32});
    std::atomic<std::int64_t> matrix_steps = 0;
    run_on_threads(workload.mesh, 60, testing_support::backend(), [&](Rank& own) {
      auto& engine = own.make<Engine>(workload, own, recurring(), EngineSettings{});
      const int rank = own.index;
      engine.iterate();
      engine.finish();
      matrix_steps += engine.matrix_steps();
      for (const auto kind : {canzona::Collective::gather_shards, canzona::Collective::scatter_updates,
                              canzona::Collective::agree_on_gradients}) {
        EXPECT_EQ(engine.traffic().sent(kind)[rank], closed_form.sent(kind)[rank]) << strategy;
      }
      if (workload.plan.gradient_reduction == GradientReduction::reduce_scatter) {
        EXPECT_EQ(engine.traffic().sent(canzona::Collective::reduce_gradients)[rank],
                  closed_form.sent(canzona::Collective::reduce_gradients)[rank]);
      }
    });
    const int copies = workload.plan.replicated() ? 8 : workload.plan.matrix_update == MatrixUpdate::redundant ? 2 : 1;
    EXPECT_EQ(matrix_steps, 8 * copies) << strategy;
  }
}

// Megatron's two all-reduces each way of a decoder layer, and the output's: of tokens × hidden fp32, each sent
// 2·(tp − 1)/tp times. qwen3-tiny has 2 layers of width 64.
TEST(Engine, ReducesActivationsOverTheTpGroupAlone) {
  for (const Mesh& mesh : std::vector<Mesh>{{2, 1}, {1, 2}, {2, 4}}) {
    WorkloadRequest request = testing_support::request_of("qwen3-tiny", mesh, "canzona", "muon");
    request.training = {.batch = 2, .micro_batches = 2};
    const Workload workload = make_workload(request);
    run_on_threads(workload.mesh, 60, testing_support::backend(), [&](Rank& rank) {
      auto& engine = rank.make<Engine>(workload, rank, recurring(), EngineSettings{.tokens = {48, 16}});
      engine.iterate();
      engine.finish();
      const std::int64_t each = 2 * 48 * 64 * 4 * (mesh.tp - 1) / mesh.tp;
      const std::int64_t reductions = request.training.micro_batches * (2 * 4 + 1);
      EXPECT_EQ(engine.traffic().sent(canzona::Collective::reduce_activations)[rank.index], reductions * each)
          << mesh.dp << " by " << mesh.tp;
    });
  }
}

TEST(Engine, RefusesPartsOfSequences) {
  const Workload workload = workload_of({1, 1}, "canzona", "muon");
  EXPECT_THROW(trained(workload, {.tokens = {64, 48}}), Error);
}

TEST(Engine, TakesNoMemoryInsideAnIteration) {
  for (const EngineOptimizer& optimizer : EngineOptimizers::instance().all()) {
    const Workload workload = workload_of({2, 2}, "canzona", optimizer.name);
    run_on_threads(workload.mesh, 60, testing_support::backend(), [&](Rank& rank) {
      auto& engine =
          rank.make<Engine>(workload, rank, recurring(),
                            EngineSettings{.precision = reference::make_precision(DType::fp32, DType::bf16)});
      const std::int64_t before = rank.device.allocations();
      for (int iteration = 0; iteration < kIterations; ++iteration) engine.iterate();
      engine.finish();
      EXPECT_EQ(rank.device.allocations(), before) << optimizer.name;
    });
  }
}

TEST(Engine, TakesTheMemoryThatItsFootprintSays) {
  const bool is_host = testing_support::backend().backend->name == "host";
  for (const EngineOptimizer& optimizer : EngineOptimizers::instance().all()) {
    for (const std::string& strategy : testing_support::strategy_names()) {
      const Workload workload = workload_of({3, 2}, strategy, optimizer.name);
      for (const DType arithmetic : {DType::fp32, DType::bf16}) {
        const EngineSettings settings{.precision = reference::make_precision(arithmetic, DType::fp32)};
        run_on_threads(workload.mesh, 60, testing_support::backend(), [&](Rank& rank) {
          const Ledger taken = rank.make<Engine>(workload, rank, recurring(), settings).memory();
          const Ledger told = footprint(workload, rank, settings);
          const Ledger planned = footprint(workload, rank.index, settings);
          for (const Purpose purpose : kPurposes) {
            if (!is_host && purpose == Purpose::scratch) continue;  // factorizations
            EXPECT_EQ(told.of(purpose), taken.of(purpose))
                << name_of(purpose) << ' ' << strategy << ' ' << optimizer.name << " rank " << rank.index;
            EXPECT_EQ(planned.of(purpose), purpose == Purpose::communication ? 0 : told.of(purpose));
          }
          EXPECT_GT(told.of(Purpose::weights), 0);
        });
      }
    }
  }
}

TEST(Engine, ANonFiniteGradientSkipsTheStepOnAllRanks) {
  reference::Objective<float> poisoned = recurring();
  poisoned.poison(1, 2, 3);
  for (const std::string& strategy : testing_support::strategy_names()) {
    const Workload workload = workload_of({3, 2}, strategy, "muon");
    EXPECT_LE(worst_error(workload, trained(workload, {}, poisoned), poisoned), kBound) << strategy;
  }
}

TEST(Engine, ARankThatThrowsEndsAllAndIsNamed) {
  const Workload workload = workload_of({2, 2}, "canzona", "muon");
  try {
    run_on_threads(workload.mesh, 60, testing_support::backend(), [&](Rank& rank) {
      auto& engine = rank.make<Engine>(workload, rank, recurring(), EngineSettings{});
      engine.iterate();
      if (rank.index == 2) throw Error("broken on purpose");
      engine.iterate();
      engine.finish();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 2: broken on purpose"), std::string::npos) << error.what();
  }
}

TEST(Engine, ARankThatStallsIsNamedWithItsStepWithinTheDeadline) {
  const Workload workload = workload_of({2, 1}, "canzona", "muon");
  const double deadline = testing_support::kIsSlow ? 5 : 0.5;
  try {
    run_on_threads(workload.mesh, deadline, testing_support::backend(), [&](Rank& rank) {
      auto& engine = rank.make<Engine>(workload, rank, recurring(), EngineSettings{});
      engine.iterate();
      engine.finish();
      if (rank.index == 1) std::this_thread::sleep_for(std::chrono::duration<double>(4 * deadline));
      engine.iterate();
      engine.finish();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(fmt::format("waited {} s for rank 1: ", deadline)), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace canzona::optimized
