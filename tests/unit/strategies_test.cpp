// Each published rule on cases small enough to follow with a pencil.
#include <gtest/gtest.h>

#include "reference/core/error.hpp"
#include "reference/plan/load.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

using testing_support::model_of;
using testing_support::parameter_of;
using testing_support::Piece;
using testing_support::plan_of;
using testing_support::strategy_names;

constexpr std::int64_t kWhole = std::int64_t{1} << 40;  // one bucket

Piece matrix(std::int64_t numel) { return {{1, numel}, Routing::matrix}; }
Piece elements(std::int64_t numel) { return {{1, numel}, Routing::elementwise}; }

/// Owner of each piece, in buffer order.
std::vector<int> owners(const Plan& plan, const Model& model, const GradientBuffer& buffer) {
  std::vector<int> owners = matrix_owners(plan, model, buffer);
  std::reverse(owners.begin(), owners.end());
  return owners;
}

TEST(StaticStrategy, GivesAMatrixToTheRankWhoseUniformRangeHoldsItsFirstElement) {
  // 512 elements over 4 ranks: ranges of 128. First elements 0, 256, 320, 384 → ranks 0, 2, 2, 3.
  const Model model = model_of({matrix(256), matrix(64), matrix(64), matrix(128)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  const Plan plan = plan_of("static", model, {4, 1}, buffer);
  EXPECT_EQ(owners(plan, model, buffer), (std::vector<int>{0, 2, 2, 3}));
  EXPECT_EQ(plan.buckets[0], (std::vector<Segment>{{{0, 256}, 0}, {{256, 384}, 2}, {{384, 512}, 3}}));
}

TEST(StaticStrategy, CutsARunOfElementwiseParametersEvenlyOverTheRanksWhoseCutsFallInIt) {
  // 256 + 512 elements over 4 ranks of 192: the cuts at 192, 384, 576. The first falls in the matrix and moves to its
  // end, so all three lie in the run [256, 768), which ranks 0…3 share as 128 each.
  const Model model = model_of({matrix(256), elements(512)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  const Plan plan = plan_of("static", model, {4, 1}, buffer);
  EXPECT_EQ(plan.buckets[0], (std::vector<Segment>{{{0, 384}, 0}, {{384, 512}, 1}, {{512, 640}, 2}, {{640, 768}, 3}}));
}

TEST(StaticStrategy, CutsElementwiseRunsAtMultiplesOf64) {
  // Five 64-element blocks over 2 ranks: 2 and 3.
  const Model model = model_of({elements(320)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  EXPECT_EQ(plan_of("static", model, {2, 1}, buffer).buckets[0],
            (std::vector<Segment>{{{0, 128}, 0}, {{128, 320}, 1}}));
}

TEST(StaticStrategy, HostsConsecutiveMatricesOneARank) {
  const Model model = model_of({matrix(128), matrix(128), matrix(128), matrix(128), matrix(128)});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const Plan plan = plan_of("static", model, {1, 2}, buffer);
  const auto at = [&](int piece) { return parameter_of(model, piece); };
  EXPECT_EQ(plan.micro_groups[0],
            (std::vector<MicroGroup>{{{{at(0), 0}, {at(1), 1}}}, {{{at(2), 0}, {at(3), 1}}}, {{{at(4), 0}}}}));
}

TEST(CanzonaStrategy, FillsTheDeficitOfEarlierBuckets) {
  // Units of 64. Buckets [4 1 1] and [3 1] over 2 ranks; mean load 5.
  // Bucket of 6: targets 3 | 3, nearest boundary to 3 in 0 4 5 6 is 4  → loads 4 | 2.
  // Bucket of 4: deficits 1 | 3, targets 1 | 3, nearest to 1 in 0 3 4 is 0 → loads 4 | 6. Start index gives 7 | 3.
  const Model model = model_of({matrix(256), matrix(64), matrix(64), matrix(192), matrix(64)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, 384);
  ASSERT_EQ(buffer.buckets.size(), 2u);
  const Plan plan = plan_of("canzona", model, {2, 1}, buffer);
  EXPECT_EQ(owners(plan, model, buffer), (std::vector<int>{0, 1, 1, 1, 1}));
  EXPECT_EQ(owners(plan_of("static", model, {2, 1}, buffer), model, buffer), (std::vector<int>{0, 1, 1, 0, 1}));
}

TEST(CanzonaStrategy, WithAlphaZeroCutsEachBucketEvenly) {
  // The same buckets: the even target of the second is 2, nearest in 0 3 4 is 3 → loads 7 | 3, as by start index.
  const Model model = model_of({matrix(256), matrix(64), matrix(64), matrix(192), matrix(64)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, 384);
  const Plan plan = plan_of("canzona", model, {2, 1}, buffer, {{"alpha", "0"}});
  EXPECT_EQ(owners(plan, model, buffer), (std::vector<int>{0, 1, 1, 0, 1}));
}

TEST(CanzonaStrategy, BlendsTheTargetsWithAlphaAndSnapsATieToTheLowerBoundary) {
  // The same buckets: the target of the second is (1−α)·2 + α·1. At α = ½ it is 1.5, as near to 0 as to 3: it goes to
  // 0. A little less α, and 3 is nearer.
  const Model model = model_of({matrix(256), matrix(64), matrix(64), matrix(192), matrix(64)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, 384);
  EXPECT_EQ(owners(plan_of("canzona", model, {2, 1}, buffer, {{"alpha", "0.5"}}), model, buffer),
            (std::vector<int>{0, 1, 1, 1, 1}));
  EXPECT_EQ(owners(plan_of("canzona", model, {2, 1}, buffer, {{"alpha", "0.49"}}), model, buffer),
            (std::vector<int>{0, 1, 1, 0, 1}));
}

TEST(CanzonaStrategy, GivesNothingMoreToARankAboveTheMean) {
  // Units of 64, 3 ranks. Bucket [9], cumulative targets 3 and 6 → 0 and 9: loads 0 | 9 | 0, mean 5.
  // Bucket [1 1 1 1 1 1]: deficits 5 | 0 (not −4) | 5, targets 3 | 0 | 3.
  const Model model = model_of({matrix(576), matrix(64), matrix(64), matrix(64), matrix(64), matrix(64), matrix(64)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, 384);
  ASSERT_EQ(buffer.buckets.size(), 2u);
  EXPECT_EQ(owners(plan_of("canzona", model, {3, 1}, buffer), model, buffer), (std::vector<int>{1, 0, 0, 0, 2, 2, 2}));
}

TEST(CanzonaStrategy, FillsACapacityToTheLastElement) {
  // Two of 10 on each of two hosts is 20, which does not pass 20; it passes 19.
  const Model model = model_of({matrix(10), matrix(10), matrix(10), matrix(10)});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  EXPECT_EQ(plan_of("canzona", model, {1, 2}, buffer, {{"capacity", "20"}}).micro_groups[0].size(), 1u);
  EXPECT_EQ(plan_of("canzona", model, {1, 2}, buffer, {{"capacity", "19"}}).micro_groups[0].size(), 2u);
}

TEST(CanzonaStrategy, HasThePublishedDefaults) {
  const Strategy& canzona = Strategies::instance().find("canzona");
  const Options options(canzona.options, {}, "canzona");
  EXPECT_EQ(options.number("alpha"), 1);
  EXPECT_EQ(options.text("cost"), "flops");
  EXPECT_EQ(options.text("capacity"), std::to_string(400 * (1 << 20)) + ":elements");
}

TEST(CanzonaStrategy, KeepsTheStaticPlanWhereBalancingIsNoBetter) {
  // Targets of 128 each; the cut at 128 is as near to 0 as to 256 and goes to 0, so rank 1 gets the 256 that rank 0
  // had.
  const Model model = model_of({matrix(256), matrix(64), matrix(64), matrix(128)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  EXPECT_EQ(plan_of("canzona", model, {4, 1}, buffer).buckets, plan_of("static", model, {4, 1}, buffer).buckets);
}

TEST(CanzonaStrategy, CutsABucketWithoutMatricesEvenly) {
  const Model model = model_of({elements(256)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  EXPECT_EQ(plan_of("canzona", model, {4, 1}, buffer).buckets[0],
            (std::vector<Segment>{{{0, 64}, 0}, {{64, 128}, 1}, {{128, 192}, 2}, {{192, 256}, 3}}));
}

TEST(CanzonaStrategy, RollsBackTheMatrixThatPassesTheCapacity) {
  // 16, 12, 10, 6 elements on 2 ranks, capacity 20: 16→0, 12→1, 10→1 would make 22: a new group begins with it;
  // 6→0, which then carries 22 of cumulative load against 22.
  const Model model = model_of({matrix(6), matrix(16), matrix(10), matrix(12)});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const Plan plan = plan_of("canzona", model, {1, 2}, buffer, {{"capacity", "20"}});
  const auto at = [&](int piece) { return parameter_of(model, piece); };
  EXPECT_EQ(plan.micro_groups[0], (std::vector<MicroGroup>{{{{at(1), 0}, {at(3), 1}}}, {{{at(2), 1}, {at(0), 0}}}}));
}

TEST(CanzonaStrategy, PutsAMatrixAboveTheCapacityInAGroupOfItsOwn) {
  // Capacity 14: 16 alone; 12 alone, since 10 joins it on rank 1; 10 and 6 on different ranks.
  const Model model = model_of({matrix(16), matrix(12), matrix(10), matrix(6)});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const Plan plan = plan_of("canzona", model, {1, 2}, buffer, {{"capacity", "14:flops"}});
  const auto at = [&](int piece) { return parameter_of(model, piece); };
  EXPECT_EQ(plan.micro_groups[0],
            (std::vector<MicroGroup>{{{{at(0), 0}}}, {{{at(1), 1}}}, {{{at(2), 1}, {at(3), 0}}}}));
}

TEST(CanzonaStrategy, SpreadsSingleMatrixGroupsByCumulativeLoad) {
  const Model model = model_of({matrix(10), matrix(10), matrix(10), matrix(10)});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const Plan plan = plan_of("canzona", model, {1, 2}, buffer, {{"capacity", "1"}});
  std::vector<int> hosts;
  for (const MicroGroup& group : plan.micro_groups[0]) hosts.push_back(group.members.at(0).host);
  EXPECT_EQ(hosts, (std::vector<int>{0, 1, 0, 1}));
}

TEST(CanzonaStrategy, RefusesACapacityWithoutItsUnit) {
  const Model model = model_of({matrix(10)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  for (const char* bad : {"", "ten", "0", "-1", "nan", "1000.5", "1e3:bytes", "5:"}) {
    EXPECT_THROW(plan_of("canzona", model, {1, 1}, buffer, {{"capacity", bad}}), InputError) << bad;
  }
}

TEST(LayerwiseStrategy, DealsBySizeInPingPongOrder) {
  // Megatron-LM's own example: p0…p9 ascending over 4 ranks → [p0 p7 p8] [p1 p6 p9] [p2 p5] [p3 p4].
  std::vector<Piece> pieces;
  for (int index = 0; index < 10; ++index) pieces.push_back(matrix(64 * (index + 1)));
  const Model model = model_of(pieces);
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  EXPECT_EQ(owners(plan_of("layerwise", model, {4, 1}, buffer), model, buffer),
            (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0, 0, 1}));
}

TEST(LayerwiseLptStrategy, PacksABucketByCostOverCumulativeLoads) {
  // max·min² of 16×16 = 4096, of 8×32 = 2048, of 8×16 = 1024; two ranks, one bucket.
  // 16×16 → 0; 8×32 → 1; 8×16 → 1 (2048 < 4096); 8×16 → 1 (3072 < 4096), if the mean size · 1.3 allows: 256 + 128 + 128
  // = 512 of (256 + 256 + 128 + 128)/2 · 1.3 = 499: it does not, so the last goes where there is room: 0.
  const Model model = model_of({{{16, 16}}, {{8, 32}}, {{8, 16}}, {{8, 16}}});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  EXPECT_EQ(owners(plan_of("layerwise-lpt", model, {2, 1}, buffer), model, buffer), (std::vector<int>{0, 1, 1, 0}));
}

TEST(SynchronousStrategy, OwnsNothingAndGathersMatrixByMatrix) {
  const Model model = model_of({matrix(64), elements(64), matrix(64)});
  const GradientBuffer buffer = make_gradient_buffer(model, 2, kWhole);
  const Plan plan = plan_of("synchronous", model, {4, 2}, buffer);
  EXPECT_TRUE(plan.replicated());
  EXPECT_EQ(plan.groups_of(3).size(), 2u);
}

TEST(EveryStrategy, NeverCutsAMatrixAndAssignsEachOnce) {
  // make_workload validates: tiling, atomicity, one owner, one host.
  for (const std::string& strategy : strategy_names()) {
    for (const Mesh mesh : {Mesh{1, 1}, Mesh{3, 1}, Mesh{8, 2}, Mesh{32, 8}, Mesh{256, 1}, Mesh{1024, 8}}) {
      for (const char* model : {"qwen3-tiny", "qwen3-1.7b", "qwen3-32b"}) {
        EXPECT_NO_THROW(make_workload(testing_support::request_of(model, mesh, strategy))) << strategy << ' ' << model;
      }
    }
  }
}

TEST(EveryStrategy, HasNothingToHostWhenEveryParameterIsElementwise) {
  for (const std::string& strategy : strategy_names()) {
    const Workload workload = testing_support::tiny_workload({4, 2}, strategy, "adamw");
    for (const auto& groups : workload.plan.micro_groups) EXPECT_TRUE(groups.empty()) << strategy;
  }
}

TEST(EveryStrategy, LeavesRanksEmptyWhenThereAreFewerParametersThanRanks) {
  // 3 matrices over 16 ranks.
  const Model model = model_of({matrix(64), matrix(64), matrix(64)});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, kWhole);
  for (const std::string& strategy : strategy_names()) {
    const Plan plan = plan_of(strategy, model, {16, 1}, buffer);
    if (plan.replicated()) continue;
    int busy = 0;
    for (const auto& groups : plan.micro_groups) busy += groups.empty() ? 0 : 1;
    EXPECT_GE(busy, 1) << strategy;
    EXPECT_LE(busy, 3) << strategy;
  }
}

}  // namespace
}  // namespace canzona
