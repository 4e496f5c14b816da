#include "reference/plan/plan.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/core/error.hpp"
#include "reference/plan/json.hpp"
#include "reference/plan/load.hpp"
#include "reference/plan/traffic.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

using testing_support::model_of;
using testing_support::numel_cost;
using testing_support::parameter_of;
using testing_support::plan_of;

constexpr std::int64_t kWhole = std::int64_t{1} << 40;

class SmallPlan : public ::testing::Test {
 protected:
  // 256, 64, 64, 128 elements over 4 DP ranks by start index: ranks 0, 2, 2, 3.
  Model model = model_of({{{1, 256}}, {{1, 64}}, {{1, 64}}, {{1, 128}}});
  GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  Plan plan = plan_of("static", model, {4, 1}, buffer);
};

TEST_F(SmallPlan, LoadsAndBalanceAreThoseOfThePencil) {
  const Loads loads = loads_of(plan, model, numel_cost());
  EXPECT_EQ(loads.dp, (std::vector<double>{256, 0, 128, 128}));
  EXPECT_EQ(loads.total, 512);
  EXPECT_EQ(loads.dp_balance(), 2);
  EXPECT_EQ(loads.gpu_balance(), 2);
  EXPECT_EQ(loads.gpu_bound(), 2);
  EXPECT_EQ(shard_elements(plan, buffer), (std::vector<std::int64_t>{256, 0, 128, 128}));
}

TEST_F(SmallPlan, RedundantWorkCountsInGpuBalanceAndNotInDpBalance) {
  const Plan synchronous = plan_of("synchronous", model, {4, 1}, buffer);
  const Loads loads = loads_of(synchronous, model, numel_cost());
  EXPECT_EQ(loads.dp_balance(), 1);
  EXPECT_EQ(loads.gpu_balance(), 4);
}

TEST_F(SmallPlan, BytesFollowTheClosedForms) {
  const WireTypes types{DType::fp32, DType::bf16, DType::bf16};
  const Traffic uneven = traffic_of(plan, model, buffer, types);
  EXPECT_EQ(uneven.sent(Collective::reduce_gradients), (std::vector<std::int64_t>{256 * 4, 512 * 4, 384 * 4, 384 * 4}));
  EXPECT_EQ(uneven.sent(Collective::gather_parameters),
            (std::vector<std::int64_t>{512 * 2, 384 * 2, 384 * 2, 256 * 2}));

  const Traffic all_reduce = traffic_of(plan_of("synchronous", model, {4, 1}, buffer), model, buffer, types);
  EXPECT_EQ(all_reduce.sent(Collective::reduce_gradients), std::vector<std::int64_t>(4, 2 * 512 * 3 / 4 * 4));
  EXPECT_EQ(all_reduce.sent(Collective::gather_parameters), std::vector<std::int64_t>(4, 0));
}

TEST_F(SmallPlan, PaddedCollectivesCostTheLargestShare) {
  const Plan padded = plan_of("layerwise-lpt", model, {4, 1}, buffer);
  const std::vector<std::int64_t> owned = owned_elements(padded, buffer, 0);
  const std::int64_t largest = *std::max_element(owned.begin(), owned.end());
  const Traffic traffic = traffic_of(padded, model, buffer, {DType::fp32, DType::bf16, DType::bf16});
  EXPECT_EQ(largest, 256);
  EXPECT_EQ(traffic.sent(Collective::reduce_gradients), std::vector<std::int64_t>(4, 3 * 256 * 4));
  EXPECT_EQ(traffic.sent(Collective::gather_parameters), std::vector<std::int64_t>(4, 3 * 256 * 2));
}

TEST(Traffic, OfAHostedMatrixIsOneShardInFromEachAndOneOutToEach) {
  // One 2×64 matrix over 2 TP ranks: shards of 64 elements, hosted by rank 0.
  const Model model = model_of({{{2, 64}}});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const WireTypes types{DType::fp32, DType::bf16, DType::bf16};
  const Traffic hosted = traffic_of(plan_of("canzona", model, {1, 2}, buffer), model, buffer, types);
  EXPECT_EQ(hosted.sent(Collective::gather_shards), (std::vector<std::int64_t>{0, 64 * 4}));
  EXPECT_EQ(hosted.sent(Collective::scatter_updates), (std::vector<std::int64_t>{64 * 2, 0}));
  const Traffic redundant = traffic_of(plan_of("layerwise", model, {1, 2}, buffer), model, buffer, types);
  EXPECT_EQ(redundant.sent(Collective::gather_shards), (std::vector<std::int64_t>{64 * 4, 64 * 4}));
  EXPECT_EQ(redundant.sent(Collective::scatter_updates), (std::vector<std::int64_t>{0, 0}));
}

TEST(Traffic, EvenRangesTileAndDifferByOneAtMost) {
  EXPECT_EQ(even_ranges({10, 20}, 4), (std::vector<Range>{{10, 13}, {13, 16}, {16, 18}, {18, 20}}));
  EXPECT_EQ(even_ranges({0, 2}, 3), (std::vector<Range>{{0, 1}, {1, 2}, {2, 2}}));
}

TEST(StateMemory, IsMasterWeightsOfTheShardAndStateOfTheHost) {
  // A 2×64 matrix and 128 elementwise elements over 2 TP ranks: 64 + 64 elements a rank.
  const Model model = model_of({{{2, 64}}, {{1, 128}, Routing::elementwise}});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const Cost cost(
      [](Shape shape) {
        return MatrixCost{1, 1, 1000 * shape.numel()};
      },
      [](Shape shape) {
        return MatrixCost{1, 1, 8 * shape.numel()};
      });
  const StateMemory hosted = state_memory(plan_of("canzona", model, {1, 2}, buffer), model, buffer, cost, DType::fp32);
  EXPECT_EQ(hosted.master_weights, (std::vector<std::int64_t>{128 * 4, 128 * 4}));
  EXPECT_EQ(hosted.optimizer_state, (std::vector<std::int64_t>{128'000 + 64 * 8, 64 * 8}));
  const StateMemory redundant =
      state_memory(plan_of("synchronous", model, {1, 2}, buffer), model, buffer, cost, DType::fp32);
  EXPECT_EQ(redundant.optimizer_state, (std::vector<std::int64_t>{128'000 + 64 * 8, 128'000 + 64 * 8}));
}

TEST(StateMemory, CountsTheGatheredMatricesThatTheCapacityBounds) {
  // 16, 12, 10, 6 elements on 2 hosts, capacity 20: groups {16→0, 12→1} and {10→1, 6→0}, of which two are in flight.
  const Model model = model_of({{{1, 16}}, {{1, 12}}, {{1, 10}}, {{1, 6}}});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const auto gathered = [&](const Plan& plan) {
    return state_memory(plan, model, buffer, numel_cost(), DType::bf16).gathered_matrices;
  };
  EXPECT_EQ(gathered(plan_of("canzona", model, {1, 2}, buffer, {{"capacity", "20"}})),
            (std::vector<std::int64_t>{(16 + 6) * 2, (12 + 10) * 2}));
  EXPECT_EQ(gathered(plan_of("static", model, {1, 2}, buffer)), (std::vector<std::int64_t>{16 * 2, 12 * 2}));
  EXPECT_EQ(gathered(plan_of("synchronous", model, {1, 2}, buffer)), (std::vector<std::int64_t>{16 * 2, 16 * 2}));
}

TEST_F(SmallPlan, ValidationNamesWhatIsWrong) {
  const auto complaint = [&](const std::function<void(Plan&)>& spoil) {
    Plan spoilt = plan;
    spoil(spoilt);
    try {
      validate(spoilt, model, buffer);
    } catch (const PlanError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(complaint([](Plan&) {}), "none");
  EXPECT_EQ(complaint([](Plan& p) { p.buckets[0][1].elements.begin = 300; }),
            "bucket 0: a segment begins at 300 where 256 was expected");
  EXPECT_EQ(complaint([](Plan& p) { p.buckets[0].pop_back(); }), "bucket 0: segments end at 384, the bucket at 512");
  EXPECT_EQ(complaint([](Plan& p) { p.buckets[0][0].owner = 4; }),
            "bucket 0: owner 4 is not one of 4 data-parallel ranks");
  EXPECT_EQ(complaint([](Plan& p) {
              p.buckets[0][0].elements.end = 128;
              p.buckets[0][1].elements.begin = 128;
            }),
            "piece 0 is a matrix and is cut between data-parallel ranks");
  EXPECT_EQ(complaint([](Plan& p) { p.buckets[0][0].owner = 1; }), "piece 0 is updated by rank 0 but owned by rank 1");
  EXPECT_EQ(complaint([](Plan& p) { p.micro_groups[3].clear(); }), "piece 3 is in 0 micro-groups");
  EXPECT_EQ(complaint([](Plan& p) { p.micro_groups[0].push_back(p.micro_groups[0][0]); }),
            "piece 0 is in 2 micro-groups");
  EXPECT_EQ(complaint([](Plan& p) { p.micro_groups[0][0].members[0].host = 1; }),
            "piece 0: host 1 is not one of 1 tensor-parallel ranks");
  EXPECT_EQ(complaint([](Plan& p) { p.parameter_gather = ParameterGather::none; }),
            "parameters must be gathered exactly when they are not replicated");
}

TEST(PlanJson, SurvivesARoundTrip) {
  for (const std::string& strategy : testing_support::strategy_names()) {
    const Workload workload = testing_support::tiny_workload({4, 2}, strategy);
    EXPECT_EQ(plan_from_json(nlohmann::ordered_json::parse(to_json(workload.plan).dump()), "file"), workload.plan)
        << strategy;
  }
}

TEST(PlanJson, RefusesWhatItDoesNotKnow) {
  const nlohmann::ordered_json good = to_json(testing_support::tiny_workload({2, 1}, "canzona").plan);
  const auto complaint = [&](const std::function<void(nlohmann::ordered_json&)>& spoil) {
    nlohmann::ordered_json json = good;
    spoil(json);
    try {
      plan_from_json(json, "plan.json");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(complaint([](auto&) {}), "none");
  EXPECT_EQ(complaint([](auto& json) { json["format"] = 2; }), "plan.json: 'format' is 2, allowed: 1");
  EXPECT_EQ(complaint([](auto& json) { json.erase("mesh"); }), "plan.json: 'mesh' is missing, allowed: a value");
  EXPECT_EQ(complaint([](auto& json) { json["matrix_update"] = "magic"; }),
            "plan.json: 'matrix_update' is 'magic', allowed: redundant, hosted");
  EXPECT_EQ(complaint([](auto& json) { json["extra"] = 1; }).substr(0, 39), "plan.json: 'extra' is unknown, allowed:");
}

TEST(Cost, OfAParameterIsTheSumOfItsBlocks) {
  Model model = model_of({{{4, 64}}});
  model.parameters[0].blocks = {{"top", {{0, 1}}}, {"bottom", {{1, 4}}}};
  const auto rows_squared = [](Shape shape) { return MatrixCost{shape.rows * shape.rows, 0, 1}; };
  const Cost cost(rows_squared, rows_squared);
  EXPECT_EQ(cost.of(model.parameters[0]).flops, 1 + 9);
  EXPECT_EQ(cost.of(model.parameters[0]).state_bytes, 2);
}

TEST(Cost, MeasuredSecondsMustCoverEveryShape) {
  const Model model = model_of({{{4, 64}}});
  const auto none = [](Shape) { return MatrixCost{}; };
  EXPECT_EQ(Cost(none, none, {{{4, 64}, 0.5}}).weight(model.parameters[0], Weight::measured), 0.5);
  EXPECT_THROW(Cost(none, none).weight(model.parameters[0], Weight::measured), InputError);
}

}  // namespace
}  // namespace canzona
