#include "harness/report/run_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

std::string milli(const ordered_json& spread) { return fmt::format("{:.2f}", spread["median"].get<double>() * 1e3); }

std::string with_spread(const ordered_json& spread) {
  return fmt::format("{} ({:.2f}–{:.2f})", milli(spread), spread["low"].get<double>() * 1e3,
                     spread["high"].get<double>() * 1e3);
}

}  // namespace

Table run_table(const ordered_json& record) {
  Table table;
  table.columns = {{"strategy", ""}, {"step ms (quartiles)", "measured"}, {"iteration ms", "measured"}};
  for (const auto& [name, spread] : record["results"][0]["phases"].items()) {
    std::string title = name;
    std::replace(title.begin(), title.end(), '_', ' ');
    table.columns.push_back({title, "measured"});
  }
  const bool checked = record["results"][0].contains("check");
  if (checked) {
    table.columns.push_back({"worst error", "measured"});
    table.columns.push_back({"bound", "computed"});
  }
  for (const ordered_json& result : record["results"]) {
    std::vector<std::string> row{result["strategy"].get<std::string>(),
                                 with_spread(result["seconds"]["optimizer_step"]),
                                 with_spread(result["seconds"]["iteration"])};
    for (const auto& [name, spread] : result["phases"].items()) row.push_back(milli(spread));
    if (checked) {
      row.push_back(fmt::format("{:.2g}{}", result["check"]["worst_error"].get<double>(),
                                result["check"]["passed"] == true ? "" : " FAILED"));
      row.push_back(fmt::format("{:.2g}", result["check"]["bound"].get<double>()));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace canzona::harness
