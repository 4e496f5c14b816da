// What the engine's ranks hold, against the reference's dense step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference/executor/dense.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// ‖W − W_dense‖ of a parameter's master weights, relative to the length of the way that one device moved them,
/// Σ‖W_t − W_{t−1}‖; the parameter whose error is largest in comparison with its bound. Infinite where a rank holds
/// other weights than the rounded masters of their owners.
struct Check {
  double worst_error = 0;
  double bound = 0;
  bool passed = false;
  std::string parameter;
  int dp_rank = 0;           ///< whose shards hold it
  bool is_measured = false;  ///< the bound comes from runs with disturbed gradients, not from a closed form
  double compared = 1;  ///< the least share of a parameter's coordinates that fp32 determines: only they are compared
};

/// What a rank holds at the end, flat as the workload's buffer.
struct Held {
  std::vector<float> weights;
  std::vector<float> masters;  ///< where the rank owns them
};

/// Dense runs of one request, kept for all strategies that equal them.
class DenseChecks {
 public:
  /// `variant` is that of the engine's optimizer.
  DenseChecks(reference::Objective<float> objective, const reference::Precision& precision, std::int64_t iterations,
              std::string variant = {})
      : objective_(std::move(objective)),
        precision_(precision),
        iterations_(iterations),
        variant_(std::move(variant)) {}

  /// `held` by rank.
  Check check(const Workload& workload, const std::vector<Held>& held);

 private:
  struct Dense;
  const Dense& dense_of(const Workload& workload);
  Dense run(const Workload& workload, const reference::Objective<float>& objective) const;
  std::vector<Dense> run_disturbed(const Workload& workload, int count, double unit) const;
  void derive_bounds(const Workload& workload, Dense& dense) const;
  void derive_low_bounds(const Workload& workload, std::int64_t roundings, Dense& dense) const;

  reference::Objective<float> objective_;
  reference::Precision precision_;
  std::int64_t iterations_;
  std::string variant_;
  std::map<std::vector<std::vector<std::int64_t>>, std::shared_ptr<Dense>> runs_;  // by turns
};

}  // namespace canzona::harness
