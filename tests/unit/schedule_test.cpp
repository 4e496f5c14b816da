#include "reference/schedule/schedule.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reference/core/error.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

using testing_support::model_of;
using testing_support::plan_of;

/// "index stream action <dependency ~dependency in the iteration before", a step a line.
std::string text_of(const Schedule& schedule) {
  std::string text;
  for (std::size_t index = 0; index < schedule.steps.size(); ++index) {
    const Step& step = schedule.steps[index];
    const char* streams[kStreams] = {"compute", "dp", "tp"};
    text += fmt::format("{} {} {}", index, streams[static_cast<int>(step.stream)], describe(step.action));
    for (const int dependency : step.waits_for) text += fmt::format(" <{}", dependency);
    for (const int dependency : step.waits_for_previous) text += fmt::format(" ~{}", dependency);
    text += '\n';
  }
  return text;
}

// Buffer order: matrix A (parameter 2), elements e (1), matrix B (0). One bucket, one layer of three.
class TwoMatrices : public ::testing::Test {
 protected:
  std::string schedule(const std::string& strategy, Mesh mesh, int rank,
                       const std::map<std::string, std::string>& options = {}) {
    return text_of(make_schedule(plan_of(strategy, model, mesh, buffer, options), model, buffer, rank));
  }

  Model model = model_of({{{2, 64}}, {{1, 128}, Routing::elementwise}, {{2, 32}}});
  GradientBuffer buffer = make_gradient_buffer(model, 2, std::int64_t{1} << 40);
};

TEST_F(TwoMatrices, CanzonaGathersTheNextGroupBeforeItScattersTheLast) {
  // Capacity 1 element: each matrix is a micro-group; A on host 0, B on host 1. This is host 0.
  EXPECT_EQ(schedule("canzona", {1, 2}, 0, {{"capacity", "1"}}),
            "0 compute Forward(0)\n"
            "1 compute Forward(1) ~17\n"
            "2 compute Forward(2)\n"
            "3 compute Backward(2)\n"
            "4 compute Backward(1)\n"
            "5 dp ReduceGradients(0) <4\n"
            "6 compute Backward(0)\n"
            "7 dp AgreeOnGradients(dp) <5 ~8\n"
            "8 tp AgreeOnGradients(tp) <7\n"
            "9 compute UpdateElements(0) <8\n"
            "10 tp GatherShards(0) <8\n"
            "11 tp GatherShards(1) <8\n"
            "12 compute Update(2) <10\n"
            "13 tp ScatterUpdates(0) <12\n"
            "14 tp ScatterUpdates(1)\n"
            "15 compute Apply(2) <13\n"
            "16 compute Apply(0) <14\n"
            "17 dp GatherParameters(0) <16\n");
}

TEST_F(TwoMatrices, StaticRunsOneGroupAfterAnother) {
  // One group of tp = 2 matrices; B's update is rank 1's, which this is.
  EXPECT_EQ(schedule("static", {1, 2}, 1),
            "0 compute Forward(0)\n"
            "1 compute Forward(1) ~15\n"
            "2 compute Forward(2)\n"
            "3 compute Backward(2)\n"
            "4 compute Backward(1)\n"
            "5 dp ReduceGradients(0) <4\n"
            "6 compute Backward(0)\n"
            "7 dp AgreeOnGradients(dp) <5 ~8\n"
            "8 tp AgreeOnGradients(tp) <7\n"
            "9 compute UpdateElements(0) <8\n"
            "10 tp GatherShards(0) <8\n"
            "11 compute Update(0) <10\n"
            "12 tp ScatterUpdates(0) <11\n"
            "13 compute Apply(2) <12\n"
            "14 compute Apply(0) <12\n"
            "15 dp GatherParameters(0) <14\n");
}

TEST_F(TwoMatrices, SynchronousUpdatesEverythingEverywhereAndGathersNothingBack) {
  EXPECT_EQ(schedule("synchronous", {4, 2}, 5),
            "0 compute Forward(0)\n"
            "1 compute Forward(1)\n"
            "2 compute Forward(2)\n"
            "3 compute Backward(2)\n"
            "4 compute Backward(1)\n"
            "5 dp ReduceGradients(0) <4\n"
            "6 compute Backward(0)\n"
            "7 dp AgreeOnGradients(dp) <5 ~8\n"
            "8 tp AgreeOnGradients(tp) <7\n"
            "9 compute UpdateElements(0) <8\n"
            "10 tp GatherShards(0) <8\n"
            "11 compute Update(2) <10\n"
            "12 compute Apply(2) <11\n"
            "13 tp GatherShards(1) <8 <11\n"
            "14 compute Update(0) <13\n"
            "15 compute Apply(0) <14\n");
}

TEST_F(TwoMatrices, LayerwiseHoldsTheNextForwardUntilAllParametersAreBack) {
  // Dealt by size: B and e and A hold 32, 128 and 64 elements a shard: B → 0, A → 1, e → 2; rank 6 is DP rank 3: it
  // owns nothing.
  EXPECT_EQ(schedule("layerwise", {4, 2}, 6),
            "0 compute Forward(0) ~9\n"
            "1 compute Forward(1)\n"
            "2 compute Forward(2)\n"
            "3 compute Backward(2)\n"
            "4 compute Backward(1)\n"
            "5 dp ReduceGradients(0) <4\n"
            "6 compute Backward(0)\n"
            "7 dp AgreeOnGradients(dp) <5 ~8\n"
            "8 tp AgreeOnGradients(tp) <7\n"
            "9 dp GatherParameters(0)\n");
}

TEST_F(TwoMatrices, MicroBatchesRunOneAfterAnotherAndReduceOnce) {
  const Plan plan = plan_of("synchronous", model, {4, 2}, buffer);
  const std::string text = text_of(make_schedule(plan, model, buffer, 0, 2));
  EXPECT_EQ(text.substr(0, text.find("11 ")),
            "0 compute Forward(0)\n"
            "1 compute Forward(1)\n"
            "2 compute Forward(2)\n"
            "3 compute Backward(2)\n"
            "4 compute Backward(1)\n"
            "5 compute Backward(0)\n"
            "6 compute Forward(0, micro-batch 1)\n"
            "7 compute Forward(1, micro-batch 1)\n"
            "8 compute Forward(2, micro-batch 1)\n"
            "9 compute Backward(2, micro-batch 1)\n"
            "10 compute Backward(1, micro-batch 1)\n");
  EXPECT_EQ(text.find("ReduceGradients"), text.rfind("ReduceGradients"));
}

TEST(Schedule, ReducesABucketAsSoonAsItsLastLayerIsDone) {
  const Workload workload = testing_support::tiny_workload({2, 1}, "canzona");
  const Schedule schedule = make_schedule(workload.plan, workload.model, workload.buffer, 0);
  int reductions = 0;
  for (const Step& step : schedule.steps) {
    const auto* reduce = std::get_if<ReduceGradients>(&step.action);
    if (reduce == nullptr) continue;
    ++reductions;
    ASSERT_EQ(step.waits_for.size(), 1u);
    const auto* backward = std::get_if<Backward>(&schedule.steps[step.waits_for[0]].action);
    ASSERT_NE(backward, nullptr);
    int lowest = workload.model.layers + 1;
    const Bucket& bucket = workload.buffer.buckets[reduce->bucket];
    for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      lowest = std::min(lowest, workload.model.parameters[workload.buffer.slots[slot].parameter].layer);
    }
    EXPECT_EQ(backward->layer, lowest);
  }
  EXPECT_EQ(reductions, static_cast<int>(workload.buffer.buckets.size()));
  EXPECT_GT(reductions, 2);
}

TEST(Schedule, ValidationRefusesDependenciesOnLaterOrMissingSteps) {
  const Workload workload = testing_support::tiny_workload({2, 1}, "canzona");
  Schedule schedule = make_schedule(workload.plan, workload.model, workload.buffer, 0);
  EXPECT_NO_THROW(validate(schedule));
  schedule.steps[3].waits_for = {3};
  EXPECT_THROW(validate(schedule), PlanError);
  schedule.steps[3].waits_for = {};
  schedule.steps[3].waits_for_previous = {static_cast<int>(schedule.steps.size())};
  EXPECT_THROW(validate(schedule), PlanError);
}

}  // namespace
}  // namespace canzona
