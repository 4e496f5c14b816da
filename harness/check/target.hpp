// Where one device takes parameters, and how near to it ranks have to come.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/check/determined.hpp"
#include "optimized/device/device.hpp"
#include "reference/executor/dense.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// Of one parameter.
struct Target {
  Matrix<float> master;
  double way = 0;            ///< Σ‖W_t − W_{t−1}‖
  Determined determined;     ///< what of it is compared
  double bound = 0;          ///< of the distance, relative to the way
  bool is_measured = false;  ///< the bound comes from runs with disturbed gradients, not from a closed form

  /// A distance's norm, relative to what is compared of the way.
  double relative(double norm) const;
};

/// Who computes a target.
enum class By { reference, device };

/// What one device makes of the workloads of a request.
class Targets {
 public:
  /// `variant` is that of the engine's optimizer.
  Targets(reference::Objective<float> objective, const reference::Precision& precision, std::int64_t iterations,
          std::string variant = {})
      : objective_(std::move(objective)),
        precision_(precision),
        iterations_(iterations),
        variant_(std::move(variant)) {}

  const reference::Precision& precision() const { return precision_; }

  /// Of every parameter, by the reference; kept for all strategies that they serve.
  const std::vector<Target>& of(const Workload& workload);

  /// Of one parameter alone, by the reference. `agreements`: what the ranks agreed on, by iteration.
  Target of(const Workload& workload, int parameter, const std::vector<Agreement>& agreements) const;
  /// The same of a matrix: by the engine's optimizer with the whole matrix to itself, in fp64 on `device`. Where its
  /// bound is measured, disturbed runs in fp32 tell how fp32 answers to noise, and what it leaves undetermined.
  Target on_device(const Workload& workload, int parameter, const std::vector<Agreement>& agreements,
                   optimized::Device& device) const;
  /// Whether on_device can be asked for it, and the memory that it takes there. Throws InputError where a side is
  /// beyond what a device factorizes.
  bool has_fp64_on_device(const Workload& workload, int parameter) const;
  std::int64_t bytes_on_device(const Workload& workload, int parameter, optimized::Device& device) const;

  /// FLOPs, nominally, that the cores do for a parameter's target: all of them, or what is left to them beside a
  /// device.
  double flops_of_cores(const Workload& workload, int parameter, By by) const;

 private:
  struct Run;
  /// Where a bound comes from.
  enum class Source { same_bits, closed_form, roundings, response };

  Source source_of(const Workload& workload, const Parameter& parameter) const;
  int disturbances(const Workload& workload, const std::vector<int>& parameters) const;
  Run run(const Workload& workload, const reference::Objective<float>& objective,
          const std::optional<reference::Excerpt>& excerpt) const;
  std::vector<Run> disturbed_runs(const Workload& workload, const std::vector<int>& parameters,
                                  const std::optional<reference::Excerpt>& excerpt, bool at_once) const;
  std::vector<Target> by_reference(const Workload& workload, const std::vector<int>& parameters,
                                   const std::optional<reference::Excerpt>& excerpt) const;
  void derive_bound(const Workload& workload, int parameter, const Run& undisturbed, const std::vector<Run>& disturbed,
                    optimized::Device& device, Target& target) const;

  reference::Objective<float> objective_;
  reference::Precision precision_;
  std::int64_t iterations_;
  std::string variant_;
  std::map<std::vector<std::vector<std::int64_t>>, std::vector<Target>> known_;  // by turns
};

}  // namespace canzona::harness
