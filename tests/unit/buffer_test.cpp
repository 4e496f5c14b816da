#include "reference/buffer/gradient_buffer.hpp"

#include <gtest/gtest.h>

#include "tests/support.hpp"

namespace canzona {
namespace {

using testing_support::model_of;

TEST(GradientBuffer, HoldsTheShardsInReverseAndAligned) {
  const Model model = build_model(harness::find_model("qwen3-tiny"), 1);
  const GradientBuffer buffer = make_gradient_buffer(model, 1, 1 << 30);
  // final norm 64, then layer 1 backwards: fc2 64×192, fc1 384×64, norm 64, k norm 8, q norm 8, qkv 256×64, norm 64, …
  const Range expected[] = {{0, 64},        {64, 12352},    {12352, 36928}, {36928, 36992},
                            {36992, 37000}, {37056, 37064}, {37120, 53504}, {53504, 53568}};
  for (std::size_t index = 0; index < std::size(expected); ++index) {
    EXPECT_EQ(buffer.slots[index].elements, expected[index]) << index;
  }
  EXPECT_EQ(buffer.slots.front().parameter, static_cast<int>(model.parameters.size()) - 1);
  EXPECT_EQ(buffer.slots.back().parameter, 0);
  EXPECT_EQ(buffer.buckets.size(), 1u);
  for (std::size_t index = 0; index < model.parameters.size(); ++index) {
    EXPECT_EQ(buffer.slot_of(static_cast<int>(index)).parameter, static_cast<int>(index));
  }
}

TEST(GradientBuffer, ABucketClosesWhenItReachesItsSize) {
  // 64 + 64 reaches 100; 200 (padded to 256) reaches it alone; 8 (padded to 64) is what is left.
  const Model model = model_of({{{1, 64}}, {{1, 64}}, {{1, 200}}, {{1, 8}}});
  const GradientBuffer buffer = make_gradient_buffer(model, 1, 100);
  ASSERT_EQ(buffer.buckets.size(), 3u);
  EXPECT_EQ(buffer.buckets[0].elements, (Range{0, 128}));
  EXPECT_EQ(buffer.buckets[1].elements, (Range{128, 384}));
  EXPECT_EQ(buffer.buckets[2].elements, (Range{384, 448}));
  EXPECT_EQ(buffer.buckets[1].first_slot, 2);
  EXPECT_EQ(buffer.buckets[1].end_slot, 3);
  EXPECT_EQ(buffer.padded(buffer.buckets[1], 2), (Range{128, 384}));
  EXPECT_EQ(buffer.padded(buffer.buckets[0], 0), (Range{0, 64}));
  EXPECT_EQ(buffer.bucket_of(testing_support::parameter_of(model, 2)), 1);
  EXPECT_EQ(buffer.numel(), 448);
}

TEST(GradientBuffer, BucketsTileTheBufferOfEveryModel) {
  for (const std::string& name : harness::model_names()) {
    const Model model = build_model(harness::find_model(name), 8);
    const GradientBuffer buffer = make_gradient_buffer(model, 8, default_bucket_size(32));
    std::int64_t position = 0;
    int slot = 0;
    for (const Bucket& bucket : buffer.buckets) {
      EXPECT_EQ(bucket.elements.begin, position);
      EXPECT_EQ(bucket.first_slot, slot);
      EXPECT_EQ(bucket.elements.end % kAlignment, 0);
      position = bucket.elements.end;
      slot = bucket.end_slot;
    }
    EXPECT_EQ(slot, static_cast<int>(model.parameters.size()));
    EXPECT_EQ(position, buffer.numel());
  }
}

TEST(GradientBuffer, DefaultBucketSizeIsMegatrons) {
  EXPECT_EQ(default_bucket_size(1), 40'000'000);
  EXPECT_EQ(default_bucket_size(40), 40'000'000);
  EXPECT_EQ(default_bucket_size(256), 256'000'000);
}

}  // namespace
}  // namespace canzona
