// Load records as tables, bars and the report's text. Everything here is made from records alone.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/table.hpp"

namespace canzona::harness {

/// One row per record: balance, busiest GPU, bytes that the busiest GPU sends by collective.
Table load_table(const std::vector<nlohmann::ordered_json>& records);

/// Records that share a mesh and an optimizer, in the order of the first of each.
struct LoadGroup {
  std::string name;  ///< "dp 32 × tp 8, muon"
  std::vector<nlohmann::ordered_json> records;
};
std::vector<LoadGroup> grouped(const std::vector<nlohmann::ordered_json>& records);

/// Memory per rank by purpose, one row per record.
Table memory_table(const std::vector<nlohmann::ordered_json>& records);

/// One bar per DP rank: its busiest GPU's FLOPs beside an equal share. At most 64 bars; beyond that each bar is the
/// busiest of a run.
std::string load_bars(const nlohmann::ordered_json& record);

/// The published figures of `path` (paper/published.toml) with their source.
Table published_table(const std::filesystem::path& path);

/// The report's part on one experiment: what its columns mean, a table per mesh, its figures.
std::string load_report(const Experiment& experiment, const std::vector<nlohmann::ordered_json>& records);

/// The report's part on published figures.
std::string published_report(const Table& published);

}  // namespace canzona::harness
