// What was measured on all ranks, as the simulator's timeline: one definition of step latency for both.
#pragma once

#include <vector>

#include "harness/simulate/simulator.hpp"
#include "optimized/engine/engine.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// By rank, iteration, step.
using MeasuredTimes = std::vector<std::vector<std::vector<optimized::StepTime>>>;

/// Every rank a class of its own; times from the earliest. A collective is ready when its rank comes to it and begins
/// when the last of its group has: `times` of all ranks are on one clock.
Timeline measured_timeline(const Workload& workload, const MeasuredTimes& times);

/// Where an iteration's time goes, in seconds. The first two add up to StepLatency's forward_backward; the others are
/// what the rank that spends most on a kind of step spends, whatever it overlaps with.
struct Phases {
  double forward_backward = 0;   ///< from the end of the step before to the last gradient computed
  double exposed_reduction = 0;  ///< from there to the last bucket reduced
  double agreement = 0;
  double gather_shards = 0;
  double update = 0;  ///< of matrices and of elements
  double scatter_updates = 0;
  double apply = 0;
  double gather_parameters = 0;
};
struct NamedPhase {
  const char* name;
  double Phases::*seconds;
};
const std::vector<NamedPhase>& named_phases();

/// Of an iteration that is not the first.
Phases phases_of(const Timeline& timeline, const Plan& plan, int iteration);

/// The median and the quartiles of what was measured several times.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
Spread spread_of(std::vector<double> samples);

/// The mean of the middle half: parts whose times are added up have to add up, as means do and medians do not where a
/// machine is now fast and now slow; what happens once in a while does not count.
double midmean_of(std::vector<double> samples);

}  // namespace canzona::harness
