// What the engine's ranks hold, against the reference's dense step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/check/held.hpp"
#include "harness/check/sample.hpp"
#include "harness/check/target.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// ‖W − W_dense‖ of a parameter's master weights, relative to the length of the way that one device moved them,
/// Σ‖W_t − W_{t−1}‖; the parameter whose error is largest in comparison with its bound. Infinite where a rank holds
/// other weights than the rounded masters of their owners.
struct Check {
  double worst_error = 0;
  double bound = 0;
  bool passed = true;
  std::string parameter;
  int dp_rank = 0;           ///< whose shards hold it
  bool is_measured = false;  ///< Target::is_measured
  double compared = 1;  ///< the least share of a parameter's coordinates that fp32 determines: only they are compared
  int parameters = 0;   ///< compared
  int on_device = 0;    ///< of them those whose target was computed there, in fp64
  std::map<std::string, std::string> left_out;  ///< names of those that were to be compared, with why they were not
};

/// What a run leaves to be checked.
struct Ended {
  Sample sample = {};
  std::map<int, std::vector<Held>> held = {};  ///< by parameter
  std::vector<Agreement> agreements = {};      ///< by iteration
};

/// On the first rank, whose device may be asked for targets. Nothing compared is not passed.
Check check(const Workload& workload, Targets& targets, const Ended& ended, optimized::Rank& rank);

/// Adds a parameter to a check; `held` by rank, `weights` their type.
void add(Check& check, const Workload& workload, DType weights, int parameter, const Target& target,
         const std::vector<Held>& held);

}  // namespace canzona::harness
