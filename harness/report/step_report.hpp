// Step records as tables and the report's text. Everything here is made from records alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/table.hpp"

namespace canzona::harness {

/// The report's part on one experiment: what its columns mean, its table, its figures, and the
/// speed-ups beside the published ones.
std::string step_report(const Experiment& experiment, const std::vector<nlohmann::ordered_json>& records,
                        const Table& published);

/// One row per record: seconds, the parts of the optimizer step, speed-ups over both baselines.
Table step_table(const std::vector<nlohmann::ordered_json>& records);

}  // namespace canzona::harness
