// The lines of "What must hold" that the reference answers for, by their numbers in the project's numerics: 1–6, 8–11,
// 14 and 15. Each runs over every optimizer and strategy that is registered.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "harness/cli/command.hpp"
#include "harness/verify/oracle.hpp"
#include "harness/verify/verify.hpp"
#include "reference/core/error.hpp"
#include "reference/model/split.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::random_matrix;

using testing_support::request_of;
using testing_support::strategy_names;

constexpr int kIterations = 3;
const Precision kDouble = make_precision(DType::fp64, DType::fp32);
const Precision kFloat = make_precision(DType::fp32, DType::fp32);

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& optimizer : Optimizers::instance().all()) names.push_back(optimizer.name);
  return names;
}

/// Those that need whole matrices.
std::vector<std::string> matrix_optimizer_names() {
  std::vector<std::string> names;
  for (const auto& optimizer : Optimizers::instance().all()) {
    if (optimizer.needs_whole_matrix) names.push_back(optimizer.name);
  }
  return names;
}

/// qwen3-tiny in several buckets, under the optimizer's verification options.
WorkloadRequest tiny(Mesh mesh, const std::string& strategy, const std::string& optimizer) {
  WorkloadRequest request = request_of("qwen3-tiny", mesh, strategy, optimizer);
  request.bucket_size = 32768;
  request.optimizer_options = Optimizers::instance().find(optimizer).verification;
  return request;
}

template <class Scalar>
std::string failure_of(const Workload& workload, const Precision& precision) {
  DenseReference<Scalar> dense(workload, precision, 1);
  dense.run(kIterations);
  Executor<Scalar> executor(workload, precision, 1);
  executor.run(kIterations);
  return harness::compare(executor, dense, workload, precision, kIterations);
}

std::unique_ptr<Optimizer<double>> make(const std::string& name) {
  return testing_support::dense_optimizer(name, Optimizers::instance().find(name).verification);
}

/// The last of a few steps on gradients that `change` has altered.
template <class Change>
Matrix<double> trained(const std::string& optimizer, std::int64_t rows, std::int64_t cols, const Change& change) {
  const auto own = make(optimizer);
  State<double> state;
  Matrix<double> update;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    const Matrix<double> gradient = change(random_matrix(rows, cols, step));
    if (step == 1) state = own->init(shape_of(gradient));
    update = own->step(gradient, state);
  }
  return update;
}

TEST(WhatMustHold, Line01EveryStrategyOptimizerAndMeshEqualsOneDeviceBitwise) {
  harness::VerifyRequest request;
  request.config = harness::find_model("qwen3-tiny");
  request.strategies = strategy_names();
  request.optimizers = optimizer_names();
  request.splits = {{BlockSplit::Qkv::qkv, true}};
  request.settings.bucket_size = 32768;
  request.settings.training.clip_norm = 1;
  const auto expect_equal = [&](std::vector<Mesh> meshes, DType precision) {
    request.meshes = std::move(meshes);
    request.precisions = {precision};
    const auto results = harness::verify(
        request, [] {}, [] { return false; });
    EXPECT_EQ(results.size(), harness::count_cases(request));
    for (const auto& result : results) EXPECT_EQ(result.failure, "") << result.what.name();
  };
  expect_equal(harness::standard_meshes(), DType::fp64);
  expect_equal({{3, 1}, {2, 2}, {4, 2}}, DType::fp32);
  expect_equal({{3, 1}, {2, 2}, {4, 2}}, DType::bf16);
}

TEST(WhatMustHold, Line02AllStrategiesAreBitwiseEqualToEachOther) {
  for (const std::string& optimizer : optimizer_names()) {
    std::set<std::vector<float>> weights;
    for (const std::string& strategy : strategy_names()) {
      const Workload workload = make_workload(tiny({3, 2}, strategy, optimizer));
      Executor<float> executor(workload, kFloat, 1);
      executor.run(kIterations);
      weights.insert(executor.rank(5).weights);
    }
    EXPECT_EQ(weights.size(), 1u) << optimizer;
  }
}

TEST(WhatMustHold, Line03TheUpdateDoesNotDependOnTensorParallelism) {
  // The vocabulary is 512 = 128·4, so tp 1, 2 and 4 store the same model; block by block, QKV and gate/up apart.
  for (const std::string& optimizer : optimizer_names()) {
    for (const auto qkv : {BlockSplit::Qkv::qkv, BlockSplit::Qkv::per_head}) {
      const auto train = [&](int tp) {
        WorkloadRequest request = tiny({2, tp}, "canzona", optimizer);
        request.split = {qkv, true};
        request.training.clip_norm = 1;
        const Workload workload = make_workload(request);
        EXPECT_EQ(failure_of<double>(workload, kDouble), "") << tp;
        DenseReference<double> dense(workload, kDouble, 1);
        dense.run(kIterations);
        return std::pair{dense.master(3), dense.master(7)};
      };
      EXPECT_EQ(train(1), train(2)) << optimizer;
      EXPECT_EQ(train(1), train(4)) << optimizer;
    }
  }
}

TEST(WhatMustHold, Line04AccumulatedMicroBatchesEqualOneBatchAndEachMatrixIsUpdatedOnceAStep) {
  for (const std::string& strategy : strategy_names()) {
    const auto train = [&](int micro_batches) {
      WorkloadRequest request = tiny({2, 2}, strategy, "muon");
      request.training = {.batch = 8, .micro_batches = micro_batches};
      const Workload workload = make_workload(request);
      EXPECT_EQ(failure_of<float>(workload, kFloat), "") << strategy;
      Executor<float> executor(workload, kFloat, 1);
      executor.run(kIterations);
      std::int64_t matrix_steps = 0;
      for (int rank = 0; rank < 4; ++rank) matrix_steps += executor.rank(rank).matrix_steps;
      // Two layers of four matrices, on every rank that computes them.
      const int copies = strategy == "synchronous" ? 4 : workload.plan.matrix_update == MatrixUpdate::redundant ? 2 : 1;
      EXPECT_EQ(matrix_steps, 8 * kIterations * copies) << strategy;
      return executor.rank(3).weights;
    };
    EXPECT_EQ(train(1), train(8)) << strategy;
  }
}

TEST(WhatMustHold, Line05EveryParameterHasOneOwnerEntersTheNormOnceAndMoves) {
  // Of 16 ranks at least 8 own no matrix of qwen3-tiny; they join every collective, or nobody could proceed.
  for (const std::string strategy : {"layerwise", "layerwise-lpt", "static", "canzona"}) {
    const Workload workload = make_workload(tiny({16, 1}, strategy, "muon"));
    const std::vector<int> owners = matrix_owners(workload.plan, workload.model, workload.buffer);
    for (std::size_t parameter = 0; parameter < owners.size(); ++parameter) {
      const bool is_matrix = workload.model.parameters[parameter].routing == Routing::matrix;
      EXPECT_EQ(owners[parameter] >= 0, is_matrix);
    }
    Executor<double> still(workload, kDouble, 1);
    Executor<double> moved(workload, kDouble, 1);
    moved.run(1);
    double squares = 0;
    for (const Slot& slot : workload.buffer.slots) {
      for (std::int64_t i = slot.elements.begin; i < slot.elements.end; ++i) {
        EXPECT_NE(still.rank(5).weights[i], moved.rank(5).weights[i]);
        for (const auto& segments : workload.plan.buckets) {
          for (const Segment& segment : segments) {
            if (segment.elements.begin <= i && i < segment.elements.end)
              squares += std::pow(moved.rank(segment.owner).gradient[i], 2);
          }
        }
      }
    }
    EXPECT_NEAR(moved.rank(0).agreement.norm, std::sqrt(squares), 1e-9) << strategy;
  }
}

TEST(WhatMustHold, Line06OneRankIsTheDenseStep) {
  for (const std::string& optimizer : optimizer_names()) {
    for (const std::string& strategy : strategy_names())
      EXPECT_EQ(failure_of<double>(make_workload(tiny({1, 1}, strategy, optimizer)), kDouble), "") << strategy;
  }
}

TEST(WhatMustHold, Line08AStackOfMatricesEqualsOneMatrixAtATime) {
  for (const std::string& name : optimizer_names()) {
    const auto optimizer = make(name);
    std::vector<State<double>> together(3, optimizer->init({8, 12}));
    std::vector<Matrix<double>> updates(3);
    for (std::uint64_t step = 0; step < 4; ++step) {
      for (std::uint64_t matrix = 0; matrix < 3; ++matrix)
        updates[matrix] = optimizer->step(random_matrix(8, 12, 10 * matrix + step), together[matrix]);
    }
    for (std::uint64_t matrix = 0; matrix < 3; ++matrix) {
      const auto alone = make(name);
      State<double> state = alone->init({8, 12});
      Matrix<double> update;
      for (std::uint64_t step = 0; step < 4; ++step)
        update = alone->step(random_matrix(8, 12, 10 * matrix + step), state);
      EXPECT_EQ(update, updates[matrix]) << name;
    }
  }
}

TEST(WhatMustHold, Line09PermutingTheGradientPermutesTheUpdate) {
  Eigen::PermutationMatrix<Eigen::Dynamic> rows(9), cols(9);
  rows.setIdentity();
  cols.setIdentity();
  std::reverse(rows.indices().begin(), rows.indices().end());
  std::rotate(cols.indices().begin(), cols.indices().begin() + 4, cols.indices().end());
  for (const std::string& name : optimizer_names()) {
    const Matrix<double> plain = trained(name, 9, 9, [](const Matrix<double>& gradient) { return gradient; });
    const Matrix<double> permuted =
        trained(name, 9, 9, [&](const Matrix<double>& gradient) { return Matrix<double>(rows * gradient * cols); });
    // What noise of a few ulp does to the update, a hundred times, as for the vectors of public implementations.
    const Matrix<double> noisy = trained(name, 9, 9, [](const Matrix<double>& gradient) {
      return Matrix<double>(gradient.cwiseProduct(Matrix<double>::Ones(9, 9) + 4e-16 * random_matrix(9, 9, 77)));
    });
    const double bound = std::max(1e-11 * plain.norm(), 100 * (noisy - plain).norm());
    EXPECT_LT((permuted - Matrix<double>(rows * plain * cols)).norm(), bound) << name;
  }
}

TEST(WhatMustHold, Line09ScalingTheGradientLeavesMuonsUpdateUnchanged) {
  const Matrix<double> plain = trained("muon", 9, 14, [](const Matrix<double>& gradient) { return gradient; });
  for (const double scale : {1e-10, 1e10}) {
    // Newton–Schulz amplifies the rounding of the scaled gradient by at most 3.4445⁵ = 485: 1.1e-13.
    const Matrix<double> scaled =
        trained("muon", 9, 14, [&](const Matrix<double>& gradient) { return Matrix<double>(scale * gradient); });
    EXPECT_LT((scaled - plain).norm(), 485 * std::numeric_limits<double>::epsilon() * plain.norm());
  }
}

TEST(WhatMustHold, Line10WhatCannotBeDecomposedKeepsTheOldBasisAndTheRecordSaysSo) {
  // eigh's checks and its retry are tested in inverse_root_test.cpp. Here: gradients so large that G·Gᵀ overflows in
  // fp32 while every gradient is finite, so nothing is skipped; every refresh fails and is counted.
  for (const std::string name : {"shampoo", "soap"}) {
    const OptimizerDescription& description = Optimizers::instance().find(name);
    const auto optimizer =
        description.make<float>(Options(description.options, {{"precondition_frequency", "1"}}, name), DType::fp32);
    State<float> state = optimizer->init({4, 4});
    for (int step = 0; step < 3; ++step)
      EXPECT_NO_THROW(optimizer->step(Matrix<float>::Constant(4, 4, 1e30f), state)) << name;
    EXPECT_EQ(state.failed_refreshes, 3) << name;
    for (const auto& [tensor, value] : state.tensors) {
      const bool is_kept = tensor.starts_with("Q_") || tensor.starts_with("root_");
      EXPECT_EQ(is_kept, value == Matrix<float>::Identity(4, 4)) << name << ' ' << tensor;
    }
  }
}

TEST(WhatMustHold, Line10RankDeficientAndZeroGradientsAreOrdinary) {
  for (const std::string& name : optimizer_names()) {
    const Matrix<double> none =
        trained(name, 6, 8, [](const Matrix<double>& gradient) { return Matrix<double>(0 * gradient); });
    EXPECT_EQ(none, (Matrix<double>::Zero(6, 8))) << name;
    const Matrix<double> rank1 = trained(
        name, 6, 8, [](const Matrix<double>& gradient) { return Matrix<double>(gradient.col(0) * gradient.row(0)); });
    EXPECT_TRUE(rank1.allFinite()) << name;
  }
}

TEST(WhatMustHold, Line11ShapesThatBreakKernels) {
  for (const std::string& name : optimizer_names()) {
    for (const auto& [rows, cols] :
         std::vector<std::pair<int, int>>{{1, 9}, {9, 1}, {1, 1}, {7, 13}, {40, 3}, {3, 40}, {17, 17}, {1, 200}}) {
      const Matrix<double> update = trained(name, rows, cols, [](const Matrix<double>& gradient) { return gradient; });
      EXPECT_TRUE(update.allFinite()) << name;
      EXPECT_GT(update.norm(), 0) << name << " of " << rows << " rows and " << cols << " columns";
    }
  }
}

TEST(WhatMustHold, Line11LowPrecisionUpdatesAreExactInTheTypeThatTravels) {
  for (const std::string& name : matrix_optimizer_names()) {
    const OptimizerDescription& description = Optimizers::instance().find(name);
    for (const DType type : {DType::bf16, DType::fp16}) {
      const auto optimizer =
          description.make<float>(Options(description.options, description.verification, name), type);
      State<float> state = optimizer->init({5, 7});
      for (std::uint64_t step = 0; step < 4; ++step) {
        const Matrix<float> update = optimizer->step(random_matrix(5, 7, step).cast<float>(), state);
        EXPECT_EQ(update, rounded(type, update)) << name;
      }
    }
  }
}

TEST(WhatMustHold, Line11OffsetsBeyondTwoToThe31) {
  // Qwen3-32B on one TP rank: 32.8·10⁹ elements, and matrices whose costs pass 2³¹ by far.
  for (const std::string& optimizer : matrix_optimizer_names()) {
    const Workload workload = make_workload(request_of("qwen3-32b", {4, 1}, "canzona", optimizer));
    EXPECT_GT(workload.buffer.numel(), std::int64_t{32'000'000'000});
    EXPECT_EQ(workload.buffer.slots.back().elements.end, workload.buffer.numel());
    for (const Parameter& parameter : workload.model.parameters) {
      const bool is_matrix = parameter.routing == Routing::matrix;
      EXPECT_EQ(workload.cost.of(parameter).flops > std::int64_t{1} << 31, is_matrix) << parameter.name;
    }
  }
}

TEST(WhatMustHold, Line14ASplitThatDoesNotDivideTheRowsIsRefusedByNameAndSizes) {
  // A gated QKV: query, gate, key and value, read as three.
  const ModelConfig config = harness::find_model("qwen3-tiny");
  Parameter gated = build_model(config, 1).parameters[3];
  ASSERT_NE(gated.name.find("linear_qkv.weight"), std::string::npos);
  ASSERT_EQ(gated.shape.rows, 8 * (2 + 2) * 8);
  gated.shape.rows = 8 * (2 + 2 + 2) * 8;
  for (const bool per_head : {false, true}) {
    try {
      qkv_blocks(gated, config, per_head);
      FAIL();
    } catch (const InputError& error) {
      const std::string message = error.what();
      for (const char* part : {"decoder.layers.0.self_attention.linear_qkv.weight", "384 rows", "256 rows"})
        EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  Parameter odd = build_model(config, 1).parameters[7];
  ASSERT_NE(odd.name.find("linear_fc1.weight"), std::string::npos);
  odd.shape.rows = 3 * 192;
  EXPECT_THROW(gate_up_blocks(odd, config), InputError);
}

TEST(WhatMustHold, Line15AnErrorThatIsNotANumberIsNoPass) {
  // Adam without eps on a second gradient of zero: 0/0.
  const std::filesystem::path path = testing_support::own_path(".json");
  std::ofstream(path) << R"({"optimizer": "adamw", "dtype": "float64", "shape": [1, 1], "initial": [1],
    "options": {"lr": 0.1, "betas": [0, 0], "eps": 0, "weight_decay": 0, "weight_decay_form": "decoupled_before"},
    "steps": [{"gradient": [1], "parameter": [0.9]}, {"gradient": [0], "parameter": [0.8]}]})";
  const harness::OracleResult result = harness::run_oracle(path, std::nullopt);
  EXPECT_NEAR(result.errors[0], 0, 1e-6);
  EXPECT_TRUE(std::isnan(result.worst_error));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(harness::run_command({"verify", "--oracle", path.string(), "--tolerance", "1e30"}), harness::kCheckFailed);
  ::testing::internal::GetCapturedStdout();
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace canzona::reference
