// The record of a run on real ranks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/run/machines.hpp"
#include "harness/run/run.hpp"

namespace canzona::harness {

/// One record of kind "measured" of all strategies of a launch. Keys: provenance (versions, nodes and, but for the
/// host, device besides), backend, model, mesh, settings, results [{strategy, optimizer, kind, check {worst_error,
/// bound, passed, parameter, dp_rank, compared, bound_is, parameters, of, on_device_in_fp64, left_out {name: why}},
/// seconds {forward_backward, optimizer_step, iteration:
/// {median, low, high, samples}}, parts of the optimizer step {compute, exposed_communication, waiting: the same},
/// phases {name: the same}, timeline as in step_record.hpp, bytes_sent {collective: {busiest, mean}} an iteration,
/// orthogonalizations (matrices × steps on all ranks), iterations, skipped, failed_refreshes}]. low and high are
/// quartiles.
nlohmann::ordered_json run_record(const RunRequest& request, const std::vector<StrategyRun>& runs,
                                  const Machines& machines, const std::string& ranks_are);

/// The mean of each turn's samples: its iterations are one period of the optimizer's refreshes.
std::vector<double> turn_means(const std::vector<double>& samples, std::size_t turns);

/// Adds to each result predicted {kind: "simulated", seconds {forward_backward, optimizer_step, iteration},
/// relative_error {the same}}, of the mean over a refresh period where there is one, the median of what is simulated
/// under each of `settings`, against the median over turns; and to the record prediction {cluster,
/// median_relative_error {the same}}.
void add_predictions(nlohmann::ordered_json& record, const std::vector<Point>& points,
                     const std::vector<SimulationSettings>& settings);

}  // namespace canzona::harness
