// What ranks that are processes must have in common before they start.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "harness/run/run.hpp"

namespace canzona::harness {

/// The model and every setting of a run, by name.
nlohmann::ordered_json identity_of(const RunRequest& request);

}  // namespace canzona::harness
