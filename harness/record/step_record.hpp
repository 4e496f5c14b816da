// The record of how long a step would take on a cluster.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/simulate/simulator.hpp"

namespace canzona::harness {

/// One simulated point. An optimizer with refreshes repeats after a period of iterations; any other after one.
struct SimulatedPoint {
  Workload workload;
  Timeline timeline;                   ///< the first iteration has nothing to wait for
  std::vector<StepLatency> latencies;  ///< of a period's iterations; where refreshes are made together, in the last
  std::vector<double> times;           ///< how many iterations of the period each stands for
  StepLatency latency;                 ///< their mean
};

/// Throws InputError where the mesh does not fit the cluster.
SimulatedPoint simulate_point(const Point& point, const SimulationSettings& settings);

/// {rank, steps [{name, stream, begin, end}]}: what the rank that ends its last matrix update last does in the last
/// iteration, in seconds from the end of the step before; gathers begun before it included.
nlohmann::ordered_json slowest_rank(const Timeline& timeline, const Plan& plan);

/// Records of kind "simulated", one a point; the points share model, mesh and optimizer. Speed-ups are over synchronous
/// and layerwise under the same settings, which are simulated besides. Keys: provenance, kind, model, cluster, mesh,
/// strategy, optimizer, settings, seconds {forward_backward, optimizer_step, iteration}, parts of the optimizer step
/// {compute, exposed_communication, waiting}, speedup {baseline: {optimizer_step, iteration}}, refresh {period, mode,
/// best_step, worst_step, steps [{seconds, times}]} where the optimizer has one (seconds and parts are then means over
/// a period), confidence (normal, low), balance {dp, gpu, gpu_bound}, timeline, as of slowest_rank.
std::vector<nlohmann::ordered_json> step_records(const std::vector<Point>& points, const SimulationSettings& settings);

}  // namespace canzona::harness
