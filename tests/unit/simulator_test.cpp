// Timelines computed by hand, and laws that any timing must obey.
#include "harness/simulate/simulator.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/record/run_record.hpp"
#include "harness/record/step_record.hpp"
#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"
#include "reference/plan/load.hpp"
#include "tests/support.hpp"

namespace canzona::harness {
namespace {

using testing_support::model_of;
using testing_support::plan_of;
using testing_support::request_of;
using testing_support::strategy_names;

// Buffer order: matrix A = 2×64 (parameter 2), elements e = 128 (1), matrix B = 2×32 (0). One bucket, layers 0, 1, 2.
class Golden : public ::testing::Test {
 protected:
  /// Nanoseconds: forward 10, backward 20, reduce 5, elements 3, A 100, B 40, apply 2, gather of parameters 4; over TP
  /// gather 7 and scatter 6, nothing where tp = 1.
  Timeline run(const Plan& plan) {
    const auto duration = [&](const Action& action, int, std::int64_t iteration) -> Nanoseconds {
      const Nanoseconds over_tp = plan.mesh.tp > 1 ? 1 : 0;
      return std::visit(
          Overloaded{
              [](const Forward&) -> Nanoseconds { return 10; }, [](const Backward&) -> Nanoseconds { return 20; },
              [](const ReduceGradients&) -> Nanoseconds { return 5; },
              [&](const AgreeOnGradients& step) -> Nanoseconds { return step.over_tp ? agree_over_tp : agree_over_dp; },
              [&](const GatherShards&) -> Nanoseconds { return 7 * over_tp; },
              [&](const Update& step) -> Nanoseconds {
                const bool refreshes = iterations.period > 1 && iteration % iterations.period == 0;
                return (step.parameter == 2 ? 100 : 40) + (refreshes ? 1000 : 0);
              },
              [](const UpdateElements&) -> Nanoseconds { return 3; },
              [&](const ScatterUpdates&) -> Nanoseconds { return 6 * over_tp; },
              [](const Apply&) -> Nanoseconds { return 2; }, [](const GatherParameters&) -> Nanoseconds { return 4; }},
          action);
    };
    return simulate(plan, model, buffer_of(plan), duration, iterations);
  }
  /// Of the last iteration.
  StepLatency latency_of(const Plan& plan) { return step_latency(run(plan), plan, iterations.count - 1); }

  GradientBuffer buffer_of(const Plan& plan) {
    return make_gradient_buffer(model, plan.mesh.tp, std::int64_t{1} << 40);
  }
  Plan planned(const std::string& strategy, Mesh mesh, const std::map<std::string, std::string>& options = {}) {
    return plan_of(strategy, model, mesh, make_gradient_buffer(model, mesh.tp, std::int64_t{1} << 40), options);
  }
  /// "begin–end" of a step of a class in an iteration.
  static std::string span(const Timeline& timeline, int unit, int iteration, const std::string& name) {
    const auto& steps = timeline.schedules[unit].steps;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      if (describe(steps[index].action) != name) continue;
      const Interval& interval = timeline.steps[unit][iteration][index];
      return std::to_string(interval.begin) + "–" + std::to_string(interval.end);
    }
    return "none";
  }

  Model model = model_of({{{2, 64}}, {{1, 128}, Routing::elementwise}, {{2, 32}}});
  Iterations iterations;
  Nanoseconds agree_over_dp = 0;
  Nanoseconds agree_over_tp = 0;
};

TEST_F(Golden, CanzonaOverlapsGatherWithComputation) {
  // Both ranks: F 0–30, B2 30–50, B1 50–70, reduce 70–75, B0 70–90, elements 90–93; gathers 75–82 and 82–89.
  // Rank 0 hosts A: 93–193. Rank 1 hosts B: 93–133. Scatter A 193–199, scatter B 199–205; apply A 199–201, B 205–207;
  // parameters 207–211. Next iteration: F0 207–217, F1 (has waited for the parameters since 211) 217–227.
  const Timeline timeline = run(planned("canzona", {1, 2}, {{"capacity", "1"}}));
  ASSERT_EQ(timeline.classes.size(), 2u);
  EXPECT_EQ(span(timeline, 0, 0, "ReduceGradients(0)"), "70–75");
  EXPECT_EQ(span(timeline, 0, 0, "UpdateElements(0)"), "90–93");
  EXPECT_EQ(span(timeline, 1, 0, "GatherShards(0)"), "75–82");
  EXPECT_EQ(span(timeline, 1, 0, "GatherShards(1)"), "82–89");
  EXPECT_EQ(span(timeline, 0, 0, "Update(2)"), "93–193");
  EXPECT_EQ(span(timeline, 1, 0, "Update(0)"), "93–133");
  EXPECT_EQ(span(timeline, 1, 0, "ScatterUpdates(0)"), "193–199");
  EXPECT_EQ(span(timeline, 0, 0, "ScatterUpdates(1)"), "199–205");
  EXPECT_EQ(span(timeline, 1, 0, "Apply(2)"), "199–201");
  EXPECT_EQ(span(timeline, 0, 0, "Apply(0)"), "205–207");
  EXPECT_EQ(span(timeline, 0, 0, "GatherParameters(0)"), "207–211");
  EXPECT_EQ(span(timeline, 0, 1, "Forward(0)"), "207–217");
  EXPECT_EQ(span(timeline, 0, 1, "Forward(1)"), "217–227");
  EXPECT_EQ(span(timeline, 0, 1, "Apply(0)"), "412–414");
}

TEST_F(Golden, CanzonasStepLatencyIsSplitAsByHand) {
  // Iteration 1 is iteration 0 plus 207: reduced at 282, stepped at 414. In that window
  // rank 0 computes 3 + 100 + 2 + 2 = 107, rank 1 3 + 40 + 2 + 2 = 47: mean 77;
  // collectives cover 282–296 and 400–412 beside it, less the apply at 406–408: 24 on both;
  // the rest of 132 is 1 and 61: mean 31.
  const Plan plan = planned("canzona", {1, 2}, {{"capacity", "1"}});
  const StepLatency latency = latency_of(plan);
  EXPECT_DOUBLE_EQ(latency.forward_backward, 75e-9);
  EXPECT_DOUBLE_EQ(latency.optimizer_step, 132e-9);
  EXPECT_DOUBLE_EQ(latency.iteration, 207e-9);
  EXPECT_DOUBLE_EQ(latency.compute, 77e-9);
  EXPECT_DOUBLE_EQ(latency.exposed_communication, 24e-9);
  EXPECT_NEAR(latency.waiting, 31e-9, 1e-20);
}

TEST_F(Golden, StaticMakesTheRankWithLessWorkWaitForParameters) {
  // DP rank 0 owns A and half of e: elements 90–93, A 93–193, apply 193–195. Rank 1 owns B: 93–133, apply 133–135.
  // Parameters 195–199. Rank 1 begins F0 at 135 and F1 at 199; rank 0 F0 at 195, F1 at 205. Backward of layer 1 ends at
  // 259 and 265, so the reduction is 265–270. Rank 0 steps at 390: 120 after it, 195 after 195.
  const Plan plan = planned("static", {2, 1});
  const Timeline timeline = run(plan);
  ASSERT_EQ(timeline.classes.size(), 2u);
  EXPECT_EQ(span(timeline, 0, 0, "Apply(2)"), "193–195");
  EXPECT_EQ(span(timeline, 1, 0, "Apply(0)"), "133–135");
  EXPECT_EQ(span(timeline, 1, 0, "GatherParameters(0)"), "195–199");
  EXPECT_EQ(span(timeline, 1, 1, "Forward(0)"), "135–145");
  EXPECT_EQ(span(timeline, 1, 1, "Forward(1)"), "199–209");
  EXPECT_EQ(span(timeline, 0, 1, "Forward(1)"), "205–215");
  EXPECT_EQ(span(timeline, 1, 1, "ReduceGradients(0)"), "265–270");
  EXPECT_EQ(span(timeline, 1, 1, "Update(0)"), "282–322");
  const StepLatency latency = step_latency(timeline, plan, 1);
  EXPECT_DOUBLE_EQ(latency.forward_backward, 75e-9);
  EXPECT_DOUBLE_EQ(latency.optimizer_step, 120e-9);
  EXPECT_DOUBLE_EQ(latency.compute, 75e-9);  // 105 and 45
  EXPECT_DOUBLE_EQ(latency.exposed_communication, 0);
  EXPECT_DOUBLE_EQ(latency.waiting, 45e-9);
}

TEST_F(Golden, LayerwiseCountsTheGatherThatItBlocksOn) {
  // Dealt B → 0, e → 1, A → 1. Rank 0: B 90–130, apply 132. Rank 1: e 90–93, A 93–193, apply 195. Parameters 195–199,
  // and only then the next forward: the period is 199, the step 398 − 274.
  const Plan plan = planned("layerwise", {2, 1});
  const Timeline timeline = run(plan);
  EXPECT_EQ(span(timeline, 0, 0, "Update(0)"), "90–130");
  EXPECT_EQ(span(timeline, 0, 0, "GatherParameters(0)"), "195–199");
  EXPECT_EQ(span(timeline, 0, 1, "Forward(0)"), "199–209");
  const StepLatency latency = step_latency(timeline, plan, 1);
  EXPECT_DOUBLE_EQ(latency.forward_backward, 75e-9);
  EXPECT_DOUBLE_EQ(latency.optimizer_step, 124e-9);
  EXPECT_DOUBLE_EQ(latency.iteration, 199e-9);
  EXPECT_DOUBLE_EQ(latency.compute, 73.5e-9);  // 42 and 105
  EXPECT_DOUBLE_EQ(latency.exposed_communication, 4e-9);
}

TEST_F(Golden, SynchronousIsOneClassOfRanks) {
  // F 30, B 60 with the reduction inside, elements 3, gather A 7 done under backward, A 100, apply 2, gather B 7, B 40,
  // apply 2. 90 + 3 + 100 + 2, with B's gather 193–200 from A's end, then 200–240 and 240–242.
  const Plan plan = planned("synchronous", {2, 2});
  const Timeline timeline = run(plan);
  ASSERT_EQ(timeline.classes.size(), 1u);
  EXPECT_EQ(timeline.classes[0].count, 4);
  EXPECT_EQ(span(timeline, 0, 0, "Update(2)"), "93–193");
  EXPECT_EQ(span(timeline, 0, 0, "GatherShards(1)"), "193–200");
  EXPECT_EQ(span(timeline, 0, 0, "Update(0)"), "200–240");
  EXPECT_DOUBLE_EQ(step_latency(timeline, plan, 1).iteration, 242e-9);
}

TEST_F(Golden, AgreementOnTheGradientHoldsUpdatesBack) {
  // As canzona's first timeline, but the reduction ends at 75, the agreement over DP at 75 + 30 and over TP at 105 + 8:
  // elements 113–116, gathers 113–120 and 120–127, A from 120.
  agree_over_dp = 30;
  agree_over_tp = 8;
  const Timeline timeline = run(planned("canzona", {1, 2}, {{"capacity", "1"}}));
  EXPECT_EQ(span(timeline, 0, 0, "AgreeOnGradients(dp)"), "75–105");
  EXPECT_EQ(span(timeline, 1, 0, "AgreeOnGradients(tp)"), "105–113");
  EXPECT_EQ(span(timeline, 0, 0, "UpdateElements(0)"), "113–116");
  EXPECT_EQ(span(timeline, 0, 0, "GatherShards(0)"), "113–120");
  EXPECT_EQ(span(timeline, 0, 0, "Update(2)"), "120–220");
  // Scatters 220–232, last apply 232–234. Beside 107 and 47 of compute, collectives show for 38 + 4 + 6 + 4 = 52 on
  // rank 0 (agreement, first gather, scatters without the apply at 226–228) and 38 + 11 + 6 + 4 = 59 on rank 1 (both
  // gathers).
  const Plan plan = planned("canzona", {1, 2}, {{"capacity", "1"}});
  const StepLatency latency = step_latency(timeline, plan, 1);
  EXPECT_DOUBLE_EQ(latency.optimizer_step, 159e-9);
  EXPECT_DOUBLE_EQ(latency.compute, 77e-9);
  EXPECT_DOUBLE_EQ(latency.exposed_communication, 55.5e-9);
}

TEST_F(Golden, RefreshesRepeatWithTheirPeriod) {
  // Every second iteration adds 1000 to each update; synchronous updates A and B one after the other. Without it an
  // iteration takes 242, with it 2242: iterations 0, 2 and 4 refresh.
  iterations = {.count = 5, .period = 2};
  const Plan plan = planned("synchronous", {2, 2});
  const Timeline timeline = run(plan);
  EXPECT_EQ(span(timeline, 0, 0, "Update(2)"), "93–1193");
  for (const int iteration : {1, 2, 3, 4}) {
    EXPECT_DOUBLE_EQ(step_latency(timeline, plan, iteration).iteration, iteration % 2 == 0 ? 2242e-9 : 242e-9);
  }
  const StepLatency average = mean({step_latency(timeline, plan, 1), step_latency(timeline, plan, 2)}, {1, 1});
  EXPECT_DOUBLE_EQ(average.iteration, 1242e-9);
  EXPECT_DOUBLE_EQ(average.forward_backward + average.optimizer_step, average.iteration);
}

// ---- laws

Cluster h100(int gpus) {
  Cluster cluster = find_cluster("h100-256");
  cluster.gpus = gpus;
  return cluster;
}

struct Simulated {
  Workload workload;
  Timeline timeline;
  StepLatency latency;
};

Simulated run_on(const Cluster& cluster, Mesh mesh, const std::string& strategy, const Network& network,
                 bool overlap = true, Uneven uneven = Uneven::per_owner, const std::string& model = "qwen3-1.7b") {
  const WorkloadRequest request = request_of(model, mesh, strategy);
  Workload workload = make_workload(request);
  const Durations durations(request.config, workload, cluster, network, {}, {}, uneven);
  Timeline timeline = simulate(
      workload.plan, workload.model, workload.buffer,
      [&](const Action& action, int rank, std::int64_t iteration) { return durations.of(action, rank, iteration); },
      {.count = 3, .overlap = overlap});
  const StepLatency latency = step_latency(timeline, workload.plan, 2);
  return {std::move(workload), std::move(timeline), latency};
}

/// Sum of the durations of one rank class's steps of one kind, in the last iteration.
template <class Kind>
double busy(const Timeline& timeline, std::size_t unit) {
  double sum = 0;
  for (std::size_t index = 0; index < timeline.schedules[unit].steps.size(); ++index) {
    if (!std::holds_alternative<Kind>(timeline.schedules[unit].steps[index].action)) continue;
    const Interval& interval = timeline.steps[unit].back()[index];
    sum += static_cast<double>(interval.end - interval.begin) * 1e-9;
  }
  return sum;
}

TEST(SimulatorLaws, OneRankTakesTheSumOfItsParts) {
  const auto network = nccl_network(h100(1));
  for (const std::string& strategy : strategy_names()) {
    const Simulated run = run_on(h100(1), {1, 1}, strategy, *network);
    Nanoseconds sum = 0;
    for (const Interval& interval : run.timeline.steps[0].back()) sum += interval.end - interval.begin;
    EXPECT_EQ(nanoseconds(run.latency.iteration), sum) << strategy;
  }
}

// qwen3-0.6b: hidden 1024, 16 query and 8 key/value heads of 128, feed-forward 3072; over 2 ranks half of each.
TEST(Durations, OfWhatTheEngineTrainsAreProductsAttentionAndReductions) {
  Cluster cluster = h100(2);
  cluster.trains_as_engine = true;
  cluster.gpu.softmax_bytes_per_second = 1e9;
  const WorkloadRequest request = request_of("qwen3-0.6b", {1, 2}, "canzona");
  const Workload workload = make_workload(request);
  const auto network = nccl_network(cluster);
  for (const DType type : {DType::fp32, DType::bf16}) {
    const double bytes = static_cast<double>(bytes_of(type));
    const Durations own(request.config, workload, cluster, *network, {2048, 512}, {DType::fp32, type, type},
                        Uneven::per_owner);
    const double reductions = 2 * network->all_reduce(bytes * 2048 * 1024, tp_group(workload.mesh, 8));
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) {
      return own.product_seconds(Product{m, n, k, count, false, false});
    };
    const double weights =
        product(2048, 2048, 1024) + product(2048, 1024, 1024) + product(2048, 3072, 1024) + product(2048, 1024, 1536);
    // 4 sequences × 4 groups of 2 query heads: scores, then context. Q, K, V are brought together, the context back.
    const double attention = product(1024, 512, 128, 16) + product(1024, 128, 512, 16) +
                             2 * own.memory_seconds(bytes * 2 * 2048 * 1024) +
                             2 * own.memory_seconds(bytes * 2 * 2048 * 512) + bytes * 5 * 8 * 2048 * 512 / 1e9;
    EXPECT_EQ(own.of(Forward{1, 0}, 0, 0), nanoseconds(weights + attention + reductions));
    EXPECT_EQ(own.of(Forward{0, 0}, 0, 0), 0);
    // The embedding, 151936 rows padded to 152064, of 1024, half of it here: noise and weights are read, gradients read
    // and written.
    EXPECT_EQ(own.of(Backward{0, 0}, 0, 0), nanoseconds(own.memory_seconds((12 + bytes) * 152064 * 512)));
  }
  EXPECT_THROW(Durations(request.config, workload, cluster, *network, {2048, 500}, {}, Uneven::per_owner), InputError);
}

TEST(Durations, OfAStackOfProductsIsOneLaunch) {
  const WorkloadRequest request = request_of("qwen3-tiny", {1, 1}, "canzona");
  const Workload workload = make_workload(request);
  const auto network = free_network();
  for (const DType type : {DType::fp32, DType::bf16}) {
    const Durations own(request.config, workload, h100(1), *network, {}, {type, type, type}, Uneven::per_owner);
    const double launch = h100(1).gpu.launch_seconds;
    const double one = own.product_seconds(64, 64, 64, type);
    EXPECT_DOUBLE_EQ(own.product_seconds(Product{64, 64, 64, 1, false, false}), one);
    EXPECT_DOUBLE_EQ(own.product_seconds(Product{64, 64, 64, 10, false, false}), launch + 10 * (one - launch));
  }
}

TEST(Durations, WeightsInFp32AreTheirOwnMasters) {
  const WorkloadRequest request = request_of("qwen3-tiny", {1, 1}, "canzona");
  const Workload workload = make_workload(request);
  const auto network = free_network();
  const auto of = [&](DType type, const Action& action) {
    const Durations own(request.config, workload, h100(1), *network, {}, {type, type, type}, Uneven::per_owner);
    return own.of(action, 0, 0);
  };
  const auto passing = [&](std::int64_t elements, double bytes) {
    return nanoseconds(h100(1).gpu.launch_seconds +
                       static_cast<double>(elements) * bytes / h100(1).gpu.memory_bytes_per_second);
  };
  std::int64_t elementwise = 0, matrix = 0;
  for (const Slot& slot : workload.buffer.slots) {
    const Parameter& parameter = workload.model.parameters[slot.parameter];
    if (parameter.routing == Routing::elementwise) {
      elementwise += slot.elements.size();
      continue;
    }
    matrix = slot.elements.size();
    // The update is read, the master read and written, a weight in two bytes written.
    EXPECT_EQ(of(DType::fp32, Apply{slot.parameter}), passing(matrix, 4 + 8));
    EXPECT_EQ(of(DType::bf16, Apply{slot.parameter}), passing(matrix, 2 + 8 + 2));
  }
  ASSERT_GT(matrix, 0);
  ASSERT_EQ(workload.buffer.buckets.size(), 1U);
  // AdamW reads a gradient, and reads and writes two moments.
  EXPECT_EQ(of(DType::fp32, UpdateElements{0}), passing(elementwise, 20 + 8));
  EXPECT_EQ(of(DType::bf16, UpdateElements{0}), passing(elementwise, 20 + 8 + 2));
}

TEST(SimulatorLaws, WithFreeCommunicationSynchronousComputesEveryMatrixOnEveryGpu) {
  const auto network = free_network();
  const Simulated one = run_on(h100(1), {1, 1}, "canzona", *network);
  const Simulated all = run_on(h100(32), {4, 8}, "synchronous", *network);
  const double ideal = busy<Update>(one.timeline, 0) / 32;
  EXPECT_NEAR(busy<Update>(all.timeline, 0) / ideal, 32, 1e-9);
}

TEST(SimulatorLaws, NeverBelowTheComputeFloorOrTheBytesFloor) {
  const Cluster cluster = h100(64);
  const auto network = nccl_network(cluster);
  double fastest = 0;
  for (const ProductRate& rate : cluster.gpu.rates.plain) fastest = std::max(fastest, rate.flops_per_second);
  for (const std::string& strategy : strategy_names()) {
    for (const Uneven way : {Uneven::per_owner, Uneven::padded, Uneven::send_recv}) {
      const Simulated run = run_on(cluster, {8, 8}, strategy, *network, true, way);
      const Loads loads = loads_of(run.workload.plan, run.workload.model, run.workload.cost);
      EXPECT_GE(run.latency.optimizer_step, loads.busiest_gpu() / fastest) << strategy;
      const Traffic traffic = traffic_of(run.workload.plan, run.workload.model, run.workload.buffer, {});
      const double bytes =
          traffic.busiest(Collective::reduce_gradients) + traffic.busiest(Collective::gather_parameters);
      EXPECT_GE(run.latency.iteration, bytes / cluster.nic_bytes_per_second * 0.999) << strategy;
    }
  }
}

TEST(SimulatorLaws, TwiceTheBandwidthIsNeverSlowerAndOverlapNeverSlowerThanNone) {
  Cluster fast = h100(64);
  fast.nvlink_bytes_per_second *= 2;
  fast.nic_bytes_per_second *= 2;
  const auto slow_network = nccl_network(h100(64));
  const auto fast_network = nccl_network(fast);
  for (const std::string& strategy : strategy_names()) {
    for (const Mesh mesh : {Mesh{8, 8}, Mesh{16, 4}}) {
      const double plain = run_on(h100(64), mesh, strategy, *slow_network).latency.iteration;
      EXPECT_LE(run_on(fast, mesh, strategy, *fast_network).latency.iteration, plain) << strategy;
      EXPECT_GE(run_on(h100(64), mesh, strategy, *slow_network, false).latency.iteration, plain) << strategy;
    }
  }
}

TEST(SimulatorLaws, PartsSumToTheStepAndClassesToTheRanks) {
  const auto network = nccl_network(h100(64));
  for (const std::string& strategy : strategy_names()) {
    const Simulated run = run_on(h100(64), {8, 8}, strategy, *network);
    EXPECT_NEAR(run.latency.compute + run.latency.exposed_communication + run.latency.waiting,
                run.latency.optimizer_step, 1e-12);
    EXPECT_NEAR(run.latency.forward_backward + run.latency.optimizer_step, run.latency.iteration, 1e-12);
    int ranks = 0;
    for (const RankClass& own : run.timeline.classes) ranks += own.count;
    EXPECT_EQ(ranks, 64) << strategy;
  }
}

TEST(SimulatorLaws, RanksThatOwnAndHostAlikeShareAClass) {
  // qwen3-tiny over 16 ranks: at least eight of them own no matrix.
  const Workload workload = make_workload(request_of("qwen3-tiny", {16, 1}, "static"));
  const std::vector<RankClass> classes = rank_classes(workload.plan, workload.model, workload.buffer);
  EXPECT_LT(classes.size(), 16u);
  EXPECT_GT(classes.size(), 1u);
}

TEST(SimulatorLaws, RanksMayDifferInTheirRates) {
  const Cluster fast = h100(4);
  Cluster slow = fast;
  for (auto* rates : {&slow.gpu.rates.plain, &slow.gpu.rates.symmetric}) {
    for (ProductRate& own : *rates) own.flops_per_second /= 2;
  }
  const auto latency = [&](const std::string& strategy, Mesh mesh, const std::vector<Cluster>& ranks) {
    SimulationSettings settings{fast, {}, Uneven::per_owner, true};
    settings.ranks = ranks;
    return simulate_point({request_of("qwen3-0.6b", mesh, strategy), DType::fp32}, settings).latency;
  };
  for (const Mesh mesh : {Mesh{4, 1}, Mesh{2, 2}}) {
    for (const std::string& strategy : strategy_names()) {
      const StepLatency as_one = latency(strategy, mesh, {}), equal = latency(strategy, mesh, {fast, fast, fast, fast});
      EXPECT_EQ(equal.optimizer_step, as_one.optimizer_step) << strategy;
      EXPECT_EQ(equal.iteration, as_one.iteration) << strategy;
      EXPECT_NEAR(equal.waiting, as_one.waiting, 1e-12) << strategy;
      const StepLatency one_slow = latency(strategy, mesh, {fast, fast, slow, fast});
      const StepLatency all_slow = latency(strategy, mesh, {slow, slow, slow, slow});
      EXPECT_GT(one_slow.iteration, as_one.iteration) << strategy;
      EXPECT_LE(one_slow.iteration, all_slow.iteration) << strategy;
    }
    // Every rank computes every update: all wait for the slow one.
    const StepLatency one_slow = latency("synchronous", mesh, {fast, fast, slow, fast});
    const StepLatency all_slow = latency("synchronous", mesh, {slow, slow, slow, slow});
    EXPECT_EQ(one_slow.iteration, all_slow.iteration);
    EXPECT_GT(one_slow.waiting, all_slow.waiting);
  }
}

TEST(SimulatorLaws, ThePeriodHasSettledAfterTheSecondIteration) {
  const auto network = nccl_network(h100(64));
  for (const std::string& strategy : strategy_names()) {
    const WorkloadRequest request = request_of("qwen3-8b", {8, 8}, strategy);
    const Workload workload = make_workload(request);
    const Durations durations(request.config, workload, h100(64), *network, {}, {}, Uneven::per_owner);
    const auto period = [&](int count) {
      const Timeline timeline = simulate(
          workload.plan, workload.model, workload.buffer,
          [&](const Action& action, int rank, std::int64_t iteration) { return durations.of(action, rank, iteration); },
          {.count = count});
      return step_latency(timeline, workload.plan, count - 1).iteration;
    };
    EXPECT_NEAR(period(2) / period(6), 1, 1e-3) << strategy;
  }
}

TEST(StepRecord, SaysWhatTheReadmesTableSays) {
  std::ifstream readme(project_folder() / "README.md");
  const std::string text(std::istreambuf_iterator<char>(readme), {});
  for (const std::string strategy : {"synchronous", "layerwise", "layerwise-lpt", "static", "canzona"}) {
    std::string row = strategy == "canzona" ? "| **canzona** |" : "| " + strategy + " |";
    for (const char* model : {"qwen3-8b", "qwen3-32b"}) {
      const StepLatency latency = simulate_point({request_of(model, {32, 8}, strategy), DType::fp32},
                                                 {find_cluster("h100-256"), {}, Uneven::per_owner, true})
                                      .latency;
      row += fmt::format(" {:.2f} | {:.2f} |", latency.optimizer_step * 1e3, latency.iteration * 1e3);
    }
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

// Of five turns, three in which one rank is slow: against the median turn of what was measured.
TEST(RunRecord, PredictsTheMedianOfItsTurns) {
  const Point point{request_of("qwen3-tiny", {2, 1}, "synchronous"), DType::fp32};
  const SimulationSettings fast{h100(2), {}, Uneven::per_owner, true};
  SimulationSettings slow = fast;
  slow.ranks = {fast.cluster, fast.cluster};
  slow.ranks[1].gpu.launch_seconds *= 2;
  const double predicted = simulate_point(point, slow).latency.iteration;
  ASSERT_GT(predicted, simulate_point(point, fast).latency.iteration);
  nlohmann::ordered_json record;
  record["settings"]["turns"]["measured"] = 3;
  for (const char* name : {"forward_backward", "optimizer_step", "iteration"})
    record["results"][0]["seconds"][name]["samples"] = {4 * predicted, 2 * predicted, predicted};
  add_predictions(record, {point}, {fast, slow, slow, fast, slow});
  const nlohmann::ordered_json& own = record["results"][0]["predicted"];
  EXPECT_EQ(own["seconds"]["iteration"], predicted);
  EXPECT_DOUBLE_EQ(own["relative_error"]["iteration"], -0.5);
  EXPECT_DOUBLE_EQ(record["prediction"]["median_relative_error"]["iteration"], 0.5);
}

TEST(StepRecord, OfEqualInputsIsEqualByteByByte) {
  Point point{request_of("qwen3-4b", {32, 8}, "canzona"), DType::fp32};
  const SimulationSettings settings{find_cluster("h100-256"), {}, Uneven::per_owner, true};
  const auto once = step_records({point}, settings);
  EXPECT_EQ(once[0].dump(), step_records({point}, settings)[0].dump());
  EXPECT_EQ(once[0]["kind"], "simulated");
  point.request.strategy = "synchronous";
  EXPECT_EQ(step_records({point}, settings)[0]["speedup"]["synchronous"]["iteration"], 1.0);
}

}  // namespace
}  // namespace canzona::harness
