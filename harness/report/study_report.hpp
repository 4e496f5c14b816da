// A measured study as a table and a report. Everything here is made from records alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/table.hpp"

namespace canzona::harness {

/// What stands in a study's folder beside its launches.
struct StudyNotes {
  const nlohmann::ordered_json* environment = nullptr;      ///< its record, where there is one
  std::vector<std::pair<std::string, std::string>> failed;  ///< points that failed, and why
  std::vector<std::string> figures;                         ///< files, relative to the report
};

/// "qwen3-32b-dp32-tp8-canzona-muon", the name of a study record.
std::string study_name(const nlohmann::ordered_json& record);

/// A row a study record: seconds with quartiles, the parts of the optimizer step, speed-ups over the baselines that
/// were measured, and beside step and iteration what was predicted, with its error.
Table study_table(const std::vector<nlohmann::ordered_json>& records);

/// A row a strategy of every check's record: its worst error and the bound.
Table check_table(const std::vector<nlohmann::ordered_json>& checks);

/// Markdown.
std::string study_report(const std::vector<nlohmann::ordered_json>& records,
                         const std::vector<nlohmann::ordered_json>& checks, const StudyNotes& notes);

}  // namespace canzona::harness
