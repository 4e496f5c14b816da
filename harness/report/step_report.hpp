// Step records as tables and the report's text. Everything here is made from records alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/report/table.hpp"

namespace canzona::harness {

/// One row per record: seconds, the parts of the optimizer step, speed-ups over both baselines.
Table step_table(const std::vector<nlohmann::ordered_json>& records);

}  // namespace canzona::harness
