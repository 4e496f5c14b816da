// What ranks that are processes must have in common before they start.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/run/run.hpp"

namespace canzona::harness {

/// The binary, the model and every setting of a run, by name.
nlohmann::ordered_json identity_of(const RunRequest& request);

/// Instead of an identity, on a rank whose command line is not allowed.
nlohmann::ordered_json complaint_of(const std::string& message);

/// What keeps the ranks from starting, in words; empty when all are the same and nobody complains.
std::string difference_between(const std::vector<std::string>& identities);

}  // namespace canzona::harness
