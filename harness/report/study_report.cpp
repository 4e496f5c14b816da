#include "harness/report/study_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/environment/environment.hpp"
#include "harness/run/timing.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kLatencies[] = {"optimizer_step", "iteration"};

std::string mesh_name(const ordered_json& record) {
  return fmt::format("dp {} × tp {}", record["mesh"]["dp"].get<int>(), record["mesh"]["tp"].get<int>());
}

std::string milli(const ordered_json& seconds) { return fmt::format("{:.2f}", seconds.get<double>() * 1e3); }

std::string with_quartiles(const ordered_json& record, const std::string& name) {
  const ordered_json& spread = record["spread"][name];
  return fmt::format("{} ({}–{})", milli(record["seconds"][name]), milli(spread["low"]), milli(spread["high"]));
}

std::string speedup(const ordered_json& record, const std::string& baseline, const std::string& name) {
  if (!record["speedup"].contains(baseline)) return "–";
  return fmt::format("{:.2f}×", record["speedup"][baseline][name].get<double>());
}

std::string predicted(const ordered_json& record, const std::string& name) {
  if (!record.contains("predicted")) return "–";
  return fmt::format("{} ({:+.0f} %)", milli(record["predicted"]["seconds"][name]),
                     record["predicted"]["relative_error"][name].get<double>() * 100);
}

/// "optimizer step 4.1 %, iteration 3.0 %", over all records that were predicted; empty where none was.
std::string median_errors(const std::vector<ordered_json>& records) {
  std::string text;
  for (const char* name : kLatencies) {
    std::vector<double> errors;
    for (const ordered_json& record : records) {
      if (record.contains("predicted"))
        errors.push_back(std::abs(record["predicted"]["relative_error"][name].get<double>()));
    }
    if (errors.empty()) return {};
    std::string title = name;
    std::replace(title.begin(), title.end(), '_', ' ');
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", title, spread_of(errors).median * 100);
  }
  return text;
}

std::string conditions(const ordered_json& record) {
  const ordered_json& settings = record["settings"];
  return fmt::format(
      "backend {}, {} launches of {} turns each, {} tokens of sequences of {}, products and weights in {}, gradients "
      "in {}, revision {}",
      record["backend"].get<std::string>(), record["launches"].get<std::size_t>(),
      settings["turns"]["measured"].get<std::int64_t>(), settings["tokens"].get<std::int64_t>(),
      settings["sequence"].get<std::int64_t>(), settings["precision"].get<std::string>(),
      settings["gradient_dtype"].get<std::string>(), record["revision"].get<std::string>());
}

}  // namespace

std::string study_name(const ordered_json& record) {
  return fmt::format("{}-dp{}-tp{}-{}-{}", record["model"].get<std::string>(), record["mesh"]["dp"].get<int>(),
                     record["mesh"]["tp"].get<int>(), record["strategy"].get<std::string>(),
                     record["optimizer"].get<std::string>());
}

Table study_table(const std::vector<ordered_json>& records) {
  const std::string kind = records.front()["kind"];
  Table table;
  table.columns = {{"model", ""},
                   {"mesh", ""},
                   {"optimizer", ""},
                   {"strategy", ""},
                   {"forward+backward ms", kind},
                   {"optimizer step ms (quartiles)", kind},
                   {"compute", kind},
                   {"communication", kind},
                   {"waiting", kind},
                   {"iteration ms (quartiles)", kind},
                   {"step over synchronous", kind},
                   {"iteration over synchronous", kind},
                   {"step over layerwise", kind},
                   {"iteration over layerwise", kind},
                   {"optimizer step ms", "simulated"},
                   {"iteration ms", "simulated"}};
  for (const ordered_json& record : records) {
    table.rows.push_back({record["model"], mesh_name(record), record["optimizer"], record["strategy"],
                          milli(record["seconds"]["forward_backward"]), with_quartiles(record, "optimizer_step"),
                          milli(record["parts"]["compute"]), milli(record["parts"]["exposed_communication"]),
                          milli(record["parts"]["waiting"]), with_quartiles(record, "iteration"),
                          speedup(record, "synchronous", "optimizer_step"), speedup(record, "synchronous", "iteration"),
                          speedup(record, "layerwise", "optimizer_step"), speedup(record, "layerwise", "iteration"),
                          predicted(record, "optimizer_step"), predicted(record, "iteration")});
  }
  return table;
}

Table check_table(const std::vector<ordered_json>& checks) {
  Table table;
  const std::string kind = "measured";
  table.columns = {{"model", ""},         {"mesh", ""},          {"optimizer", ""}, {"strategy", ""}, {"compared", ""},
                   {"worst error", kind}, {"bound", "computed"}, {"parameter", ""}, {"passed", ""}};
  for (const ordered_json& run : checks) {
    for (const ordered_json& result : run["results"]) {
      const ordered_json& check = result["check"];
      table.rows.push_back({run["model"], mesh_name(run), result["optimizer"], result["strategy"],
                            fmt::format("{} of {}", check["parameters"].get<int>(), check["of"].get<int>()),
                            fmt::format("{:.2g}", check["worst_error"].get<double>()),
                            fmt::format("{:.2g}", check["bound"].get<double>()), check["parameter"],
                            check["passed"] == true ? "yes" : "NO"});
    }
  }
  return table;
}

std::string study_report(const std::vector<ordered_json>& records, const std::vector<ordered_json>& checks,
                         const StudyNotes& notes) {
  const ordered_json& first = records.front();
  const Table table = study_table(records);
  std::string text = fmt::format(
      "# How long a step takes on {}\n\nMade by `canzona collect` from the records beside it; do not edit.\n\n"
      "*{}*: {}. **forward+backward** runs from the end of the step before to the last gradient bucket reduced on the "
      "slowest rank; **optimizer step** from there to the last weight applied, plus the gathering of parameters where "
      "a strategy blocks on it; medians and quartiles over all launches, of means over a refresh period where an "
      "optimizer has one. Compute, communication (exposed) and waiting are parts of the optimizer step in ms, averaged "
      "over all ranks. *simulated*: what `canzona simulate` says for the figures that `canzona calibrate` measured "
      "here, and its error.\n",
      first["cluster"].get<std::string>(), first["kind"].get<std::string>(), conditions(first));
  if (const std::string names = constant_names(table); !names.empty()) text += "\nAll rows: " + names + ".\n";
  text += fmt::format("\n{}", to_markdown(without_constant_names(table)));
  if (const std::string errors = median_errors(records); !errors.empty())
    text += "\nMedian relative error of the prediction: " + errors + ".\n";
  for (const std::string& figure : notes.figures) text += fmt::format("\n![{0}]({0})\n", figure);
  if (!notes.failed.empty()) {
    text += "\n## What failed\n\n";
    for (const auto& [point, reason] : notes.failed) text += fmt::format("- {}: {}\n", point, reason);
  }
  if (!checks.empty()) text += fmt::format("\n## Equal to one device\n\n{}", to_markdown(check_table(checks)));
  if (notes.environment) text += fmt::format("\n## Where\n\n{}", to_markdown(environment_table(*notes.environment)));
  return text;
}

}  // namespace canzona::harness
