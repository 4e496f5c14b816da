// Run records as tables.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/report/table.hpp"

namespace canzona::harness {

/// A row a strategy: medians in ms, step and iteration over the first strategy's, and what the check found.
Table run_table(const nlohmann::ordered_json& record);

/// Which part of the model was checked and what was left out, in lines; empty where all of it was, or nothing.
std::string check_text(const nlohmann::ordered_json& record);

/// Measured and predicted side by side, and the median relative error; empty for a record without predictions.
std::string prediction_text(const nlohmann::ordered_json& record);

}  // namespace canzona::harness
