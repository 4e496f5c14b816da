// Which parameters a check draws, and who computes their targets.
#include "harness/check/sample.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "optimized/host/factorizations.hpp"
#include "optimized/host/host_device.hpp"
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
  for (const char* optimizer : {"muon", "normuon", "shampoo", "soap", "adamw"}) {
    for (const DType arithmetic : {DType::fp32, DType::bf16}) {
      const Workload workload = workload_of(optimizer);
      const Targets targets = targets_of(arithmetic);
      for (std::size_t index = 0; index < workload.model.parameters.size(); ++index) {
        const auto parameter = static_cast<int>(index);
        const auto of_all = [&](double flops) { return sample_of(workload, targets, {100, flops}, 1); };
        const double by_reference = targets.flops_of_cores(workload, parameter, By::reference);
        const double by_device = targets.flops_of_cores(workload, parameter, By::device);
        const bool is_matrix = workload.model.parameters[index].routing == Routing::matrix;
        EXPECT_EQ(of_all(by_reference).chosen.at(parameter), By::reference);
        if (!is_matrix || std::string(optimizer) == "adamw") {
          EXPECT_EQ(of_all(0.999 * by_reference).left.count(workload.model.parameters[index].name), 1u);
          continue;
        }
        ASSERT_LT(by_device, 0.999 * by_reference) << optimizer;
        EXPECT_EQ(of_all(0.999 * by_reference).chosen.at(parameter), By::device);
        EXPECT_EQ(of_all(by_device).chosen.at(parameter), By::device);
        EXPECT_EQ(of_all(0.999 * by_device).left.count(workload.model.parameters[index].name), 1u);
      }
    }
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
    const auto parameter_index = static_cast<int>(index);
    EXPECT_EQ(targets_of().flops_of_cores(workload, parameter_index, By::device), drawn);
    EXPECT_EQ(targets_of().flops_of_cores(workload, parameter_index, By::reference),
              drawn + 2 * 5 * (4 * m * m * n + 2 * m * m * m));
    // In bf16 three disturbed runs besides.
    EXPECT_EQ(targets_of(DType::bf16).flops_of_cores(workload, parameter_index, By::device), 4 * drawn);
    // Of SOAP one in fp32, and ⌈n/m⌉ more that find what is determined: directions in n dimensions on which four
    // differences are laid.
    EXPECT_EQ(targets_of().flops_of_cores(workload_of("soap"), parameter_index, By::device),
              (5 + std::ceil(n / m)) * drawn + 4 * 2 * m * n * n);
  }
}

// Of linear_proj, 256 by 256: gradient, update, momentum and X in fp32, X twice more in fp64, and two Gram matrices;
// the norm and the step's values.
// Of SOAP everything is in fp64 beside gradient and update: two moments, two factors and two bases; G, three more like
// it, two squares; estimates and eigenvalues; what the factorizations ask for; ranks, sums and flags.
TEST(Sample, CountsWhatTheDeviceHasToHold) {
  const Workload workload = workload_of();
  const Workload soap = workload_of("soap");
  const auto device = optimized::make_host_device();
  for (std::size_t index = 0; index < workload.model.parameters.size(); ++index) {
    if (workload.model.parameters[index].name != "decoder.layers.0.self_attention.linear_proj.weight") continue;
    const std::int64_t bytes = 256 * 256 * (4 * 4 + 2 * 8 + 2 * 8) + 8 + 24;
    EXPECT_EQ(no_room(workload, targets_of(), static_cast<int>(index), *device, bytes), "");
    EXPECT_EQ(no_room(workload, targets_of(), static_cast<int>(index), *device, bytes - 1),
              "would take 0.00315 GB of the device, 0.00315 GB are free");
    const std::int64_t of_soap = 256 * 256 * (2 * 4 + (6 + 4 + 2) * 8) + 256 * (8 + 8 + 4) +
                                 optimized::host_factorization_bytes<double>(256) + 3 * 8 + 4 + 4 + 8 + 24;
    EXPECT_EQ(targets_of().bytes_on_device(soap, static_cast<int>(index), *device), of_soap);
  }
}

}  // namespace
}  // namespace canzona::harness
