// Load records as tables, bars and the report's text. Everything here is made from records alone.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/report/table.hpp"

namespace canzona::harness {

/// One row per record: balance, busiest GPU, bytes that the busiest GPU sends by collective.
Table load_table(const std::vector<nlohmann::ordered_json>& records);

/// State memory per rank by purpose, one row per record.
Table memory_table(const std::vector<nlohmann::ordered_json>& records);

/// One bar per DP rank: its busiest GPU's FLOPs beside the mean. At most 64 bars; beyond that each bar is the busiest
/// of a run.
std::string load_bars(const nlohmann::ordered_json& record);

/// The published figures of `path` (paper/published.toml) with their source.
Table published_table(const std::filesystem::path& path);

/// paper/report.md: the load tables per mesh, the figures, and what is published.
std::string load_report(const std::string& title, const std::vector<nlohmann::ordered_json>& records,
                        const Table& published);

}  // namespace canzona::harness
