// What the repeated launches of a study say together.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace canzona::harness {

/// The records of `canzona run` in a folder by file name, each with that name under "file". Throws InputError naming a
/// file that is none.
std::vector<nlohmann::ordered_json> read_runs(const std::filesystem::path& folder);

/// One record a model, mesh, optimizer and strategy: strategies in their own order, the rest in that of the records.
/// Keys are those of step_record.hpp, of kind "measured", so that the same figures are made of both: kind, model,
/// cluster (what it ran on), mesh, strategy, optimizer, settings, launches, seconds and parts (medians; where an
/// optimizer refreshes, of means over its period), spread {as seconds: {low, high, samples}}, speedup over those
/// baselines that were measured, predicted {cluster, seconds, relative_error} where launches predicted, timeline.
/// Throws InputError naming two files of one point that have different settings.
std::vector<nlohmann::ordered_json> study_records(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace canzona::harness
