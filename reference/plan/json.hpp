// Plans as JSON: to keep, compare and replay.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "reference/plan/plan.hpp"

namespace canzona {

nlohmann::ordered_json to_json(const Plan& plan);

/// The plan that to_json wrote. Throws InputError naming `origin`, the key and the value when a key is missing,
/// unknown or of another type. It does not validate the plan against a model.
Plan plan_from_json(const nlohmann::ordered_json& json, std::string_view origin);

}  // namespace canzona
