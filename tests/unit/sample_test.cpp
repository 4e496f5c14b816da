// Which parameters a check draws, and who computes their targets.
#include "harness/check/sample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support.hpp"

namespace canzona::harness {
namespace {

Workload workload_of(const std::string& optimizer = "muon") {
  WorkloadRequest request = testing_support::request_of("qwen3-mini", {2, 2}, "canzona", optimizer);
  request.training.clip_norm = 1;
  return make_workload(request);
}

Targets targets_of(DType arithmetic = DType::fp32) {
  return {1, reference::make_precision(arithmetic, DType::fp32), 2};
}

std::set<int> drawn(const Sample& sample) {
  std::set<int> parameters;
  for (const auto& [parameter, by] : sample.chosen) parameters.insert(parameter);
  return parameters;
}

// Four layers of qkv, proj, fc1, fc2, two norms of the layer's width (beside the last one) and two of a head's; the
// embedding, and the output layer, which is like it.
TEST(Sample, DrawsFromEachKindBySeed) {
  const Workload workload = workload_of();
  const auto sample = [&](std::int64_t of_each_kind, std::uint64_t seed) {
    return drawn(sample_of(workload, targets_of(), {of_each_kind, 1e30}, seed));
  };
  EXPECT_EQ(workload.model.parameters.size(), 35u);
  EXPECT_EQ(sample(1, 1).size(), 7u);
  EXPECT_EQ(sample(2, 1).size(), 14u);
  EXPECT_EQ(sample(100, 1).size(), 35u);
  EXPECT_EQ(sample(1, 1), sample(1, 1));
  std::set<int> ever;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) ever.merge(sample(1, seed));
  EXPECT_EQ(ever.size(), 35u);
}

TEST(Sample, WhatTheCoresCannotDoTheDeviceDoesInFp64OrNobody) {
  const auto count = [](const Sample& sample, By by) {
    return std::count_if(sample.chosen.begin(), sample.chosen.end(),
                         [by](const auto& one) { return one.second == by; });
  };
  struct Case {
    std::string optimizer;
    DType arithmetic;
    std::ptrdiff_t on_device;
    std::size_t left;
  };
  // Matrices are left where the optimizer's own work is in fp32, or its bound needs eigenvectors of what runs differ
  // by.
  for (const Case& own : std::vector<Case>{{"muon", DType::fp32, 4, 0},
                                           {"muon", DType::bf16, 4, 0},
                                           {"normuon", DType::fp32, 0, 4},
                                           {"normuon", DType::bf16, 4, 0},
                                           {"shampoo", DType::fp32, 0, 4},
                                           {"soap", DType::bf16, 0, 4},
                                           {"adamw", DType::fp32, 0, 0}}) {
    const Workload workload = workload_of(own.optimizer);
    const Targets targets = targets_of(own.arithmetic);
    double most_drawn = 0, least_done = 1e30;
    for (std::size_t index = 0; index < workload.model.parameters.size(); ++index) {
      const auto parameter = static_cast<int>(index);
      most_drawn = std::max(most_drawn, targets.drawing_flops(workload, parameter));
      if (workload.model.parameters[index].routing == Routing::matrix)
        least_done = std::min(least_done, targets.reference_flops(workload, parameter));
    }
    ASSERT_LT(most_drawn, least_done) << own.optimizer;
    const Sample sample = sample_of(workload, targets, {1, most_drawn}, 1);
    EXPECT_EQ(count(sample, By::device), own.on_device) << own.optimizer;
    EXPECT_EQ(sample.left.size(), own.left) << own.optimizer;
    EXPECT_EQ(drawn(sample).size() + sample.left.size(), 7u) << own.optimizer;
    EXPECT_EQ(sample_of(workload, targets, {1, 0}, 1).left.size(), 7u) << own.optimizer;
  }
}

// A step of Muon is 4m²n + 2m³ FLOPs in each of 5 Newton–Schulz steps; here 2 iterations of 2 ranks, 1 run.
TEST(Sample, CountsWhatTheCoresDo) {
  const Workload workload = workload_of();
  for (std::size_t index = 0; index < workload.model.parameters.size(); ++index) {
    const Parameter& parameter = workload.model.parameters[index];
    if (parameter.routing == Routing::elementwise) continue;
    const auto m = static_cast<double>(parameter.shape.shorter());
    const auto n = static_cast<double>(parameter.shape.longer());
    const double drawn = 20 * m * n * 2 * 2;
    EXPECT_EQ(targets_of().drawing_flops(workload, static_cast<int>(index)), drawn);
    EXPECT_EQ(targets_of().reference_flops(workload, static_cast<int>(index)),
              drawn + 2 * 5 * (4 * m * m * n + 2 * m * m * m));
    // In bf16 three disturbed runs besides.
    EXPECT_EQ(targets_of(DType::bf16).drawing_flops(workload, static_cast<int>(index)), 4 * drawn);
  }
}

// Of linear_proj, 256 by 256: gradient, update, momentum and X in fp32, X twice more in fp64, and two Gram matrices;
// the norm and the step's values.
TEST(Sample, CountsWhatTheDeviceHasToHold) {
  const Workload workload = workload_of();
  for (std::size_t index = 0; index < workload.model.parameters.size(); ++index) {
    if (workload.model.parameters[index].name != "decoder.layers.0.self_attention.linear_proj.weight") continue;
    const std::int64_t bytes = 256 * 256 * (4 * 4 + 2 * 8 + 2 * 8) + 8 + 24;
    EXPECT_EQ(no_room(workload, static_cast<int>(index), bytes), "");
    EXPECT_EQ(no_room(workload, static_cast<int>(index), bytes - 1),
              "would take 0.00315 GB of the device, 0.00315 GB are free");
  }
}

}  // namespace
}  // namespace canzona::harness
