#include "harness/report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
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
  const ordered_json& first = record["results"][0];
  const std::string kind = first["kind"];
  const bool timed = first.contains("seconds");
  table.columns = {{"strategy", ""}};
  if (timed) {
    table.columns.insert(table.columns.end(), {{"step ms (quartiles)", kind}, {"iteration ms", kind}});
    for (const auto& [name, spread] : first["phases"].items()) {
      std::string title = name;
      std::replace(title.begin(), title.end(), '_', ' ');
      table.columns.push_back({title, kind});
    }
  }
  const bool checked = first.contains("check");
  if (checked) {
    table.columns.push_back({"worst error", kind});
    table.columns.push_back({"bound", "computed"});
  }
  for (const ordered_json& result : record["results"]) {
    std::vector<std::string> row{result["strategy"].get<std::string>()};
    if (timed) {
      row.push_back(with_spread(result["seconds"]["optimizer_step"]));
      row.push_back(with_spread(result["seconds"]["iteration"]));
      for (const auto& [name, spread] : result["phases"].items()) row.push_back(milli(spread));
    }
    if (checked) {
      row.push_back(fmt::format("{:.2g}{}", result["check"]["worst_error"].get<double>(),
                                result["check"]["passed"] == true ? "" : " FAILED"));
      row.push_back(fmt::format("{:.2g}", result["check"]["bound"].get<double>()));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string check_text(const ordered_json& record) {
  const ordered_json& result = record["results"][0];
  if (!result.contains("check") || result["check"]["parameters"] == result["check"]["of"]) return {};
  const ordered_json& check = result["check"];
  std::string text = fmt::format("Held against one device: {} of {} parameters", check["parameters"].get<int>(),
                                 check["of"].get<int>());
  if (const int count = check["on_device_in_fp64"]; count > 0) text += fmt::format(", {} of them in fp64 there", count);
  text += "\n";
  for (const auto& [name, why] : check["left_out"].items())
    text += fmt::format("left out: {}, which {}\n", name, why.get<std::string>());
  return text;
}

std::string prediction_text(const ordered_json& record) {
  if (!record.contains("prediction")) return {};
  Table table;
  table.columns = {{"strategy", ""}};
  const ordered_json& errors = record["prediction"]["median_relative_error"];
  for (const auto& [name, error] : errors.items()) {
    std::string title = name;
    std::replace(title.begin(), title.end(), '_', ' ');
    for (const char* kind : {"measured", "simulated"}) table.columns.push_back({title + " ms", kind});
  }
  for (const ordered_json& result : record["results"]) {
    std::vector<std::string> row{result["strategy"].get<std::string>()};
    for (const auto& [name, error] : errors.items()) {
      const double predicted = result["predicted"]["seconds"][name].get<double>();
      const double ratio = 1 + result["predicted"]["relative_error"][name].get<double>();
      row.push_back(fmt::format("{:.2f}", predicted / ratio * 1e3));
      row.push_back(fmt::format("{:.2f} ({:+.0f} %)", predicted * 1e3, (ratio - 1) * 100));
    }
    table.rows.push_back(std::move(row));
  }
  std::string medians;
  for (const auto& [name, error] : errors.items())
    medians += fmt::format("{}{} {:.1f} %", medians.empty() ? "" : ", ", name, error.get<double>() * 100);
  return fmt::format("\nPredicted from {}; median relative error over strategies: {}\n{}",
                     record["prediction"]["cluster"].get<std::string>(), medians, to_text(table));
}

}  // namespace canzona::harness
