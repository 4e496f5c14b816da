// The third executor of a schedule: time instead of numbers. Event-driven, deterministic, without a clock.
#pragma once

#include <functional>
#include <vector>

#include "harness/simulate/durations.hpp"

namespace canzona::harness {

/// Ranks that own and host alike, and therefore do the same at the same time: one schedule stands for all of them.
struct RankClass {
  int representative = 0;  ///< a rank of the class
  int count = 0;           ///< how many ranks it stands for
  int dp_class = 0;
  int tp_class = 0;
};

/// By parameter and block, Workload::turns.
using Turns = std::vector<std::vector<std::int64_t>>;

/// Every DP rank with equal shares and equal micro-groups, whose matrices have equal `turns` if any are given, is one
/// DP class; TP ranks are one class where updates are redundant. Where `ranks_differ`, each is a class. Classes are
/// ordered by (dp_class, tp_class).
std::vector<RankClass> rank_classes(const Plan& plan, const Model& model, const GradientBuffer& buffer,
                                    const Turns& turns = {}, bool ranks_differ = false);

/// When a step became ready on its rank, when it began (a collective: when the last rank was ready) and when it ended.
struct Interval {
  Nanoseconds ready = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

struct Timeline {
  std::vector<RankClass> classes;
  std::vector<Schedule> schedules;                        ///< by class
  std::vector<std::vector<std::vector<Interval>>> steps;  ///< by class, iteration, step
};

/// The duration of a step on a rank in an iteration; of a collective, from the moment that its last rank is ready.
using DurationOf = std::function<Nanoseconds(const Action&, int rank, std::int64_t iteration)>;

/// How iterations are run.
struct Iterations {
  int count = 2;
  bool overlap = true;  ///< off: every rank does one step after another, in the order of its schedule
  int micro_batches = 1;
  std::int64_t period = 1;    ///< durations repeat after so many
  Turns turns = {};           ///< where ranks differ by them
  bool ranks_differ = false;  ///< in how long the same step takes
};

/// Throws PlanError when a step can never run.
Timeline simulate(const Plan& plan, const Model& model, const GradientBuffer& buffer, const DurationOf& duration_of,
                  const Iterations& iterations);

/// Where the time of one iteration goes, in the steady state, in seconds (see Step latency in the README); the mean
/// over several iterations is one of the same kind.
struct StepLatency {
  double forward_backward = 0;
  double optimizer_step = 0;
  double iteration = 0;
  /// Of optimizer_step, averaged over all GPUs: computing; not computing while a collective of the step moves data; the
  /// rest, in which it waits for others.
  double compute = 0;
  double exposed_communication = 0;
  double waiting = 0;
};

/// When the slowest rank has ended the optimizer step of an iteration: the last weight applied and, where the strategy
/// blocks on it, the last parameter gathered.
Nanoseconds step_end(const Timeline& timeline, const Plan& plan, int iteration);

/// Of an iteration that is not the first.
StepLatency step_latency(const Timeline& timeline, const Plan& plan, int iteration);

/// Each counted so many times.
StepLatency mean(const std::vector<StepLatency>& latencies, const std::vector<double>& times);

}  // namespace canzona::harness
