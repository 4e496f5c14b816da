#include "harness/report/step_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

std::string mesh_name(const ordered_json& record) {
  return fmt::format("dp {} × tp {}", record["mesh"]["dp"].get<int>(), record["mesh"]["tp"].get<int>());
}
std::string milli(const ordered_json& seconds) { return fmt::format("{:.2f}", seconds.get<double>() * 1e3); }
std::string times(const ordered_json& ratio) { return fmt::format("{:.2f}×", ratio.get<double>()); }

/// Canzona over each baseline, a row per model and cluster, and the published figures below them.
Table headline_table(const std::vector<ordered_json>& records, const Table& published) {
  Table table;
  table.columns = {
      {"what", ""}, {"over", ""}, {"optimizer step", "simulated"}, {"iteration", "simulated"}, {"figure", "published"}};
  for (const ordered_json& record : records) {
    if (record["strategy"] != "canzona") continue;
    for (const auto& [baseline, ratio] : record["speedup"].items()) {
      table.rows.push_back(
          {fmt::format("{}, {}, {}, {}", record["model"].get<std::string>(), record["optimizer"].get<std::string>(),
                       record["cluster"].get<std::string>(), mesh_name(record)),
           baseline, times(ratio["optimizer_step"]), times(ratio["iteration"]), "–"});
    }
  }
  for (const auto& row : published.rows) {
    if (row[1].ends_with("×")) table.rows.push_back({row[0], "its baseline, not stated", "–", "–", row[1]});
  }
  return table;
}

/// What some records need explained.
std::string remarks_on(const std::vector<ordered_json>& records) {
  std::string text;
  const auto any = [&](const auto& holds) { return std::any_of(records.begin(), records.end(), holds); };
  if (any([](const ordered_json& record) { return record.contains("refresh"); })) {
    text +=
        "Where an optimizer refreshes its preconditioner every few steps, times are means over such a period, and its "
        "best and worst step stand beside them. ";
  }
  if (any([](const ordered_json& record) { return record["confidence"] == "low"; })) {
    text +=
        "Confidence **low**: eigh and QR are modelled, not measured (two dependent kernels a column, a pass over the "
        "trailing matrix for eigh, the rest at the rate of products); a cluster file with [[factorization]] seconds "
        "replaces that; coupled iterations are counted as twenty. ";
  }
  return text;
}

}  // namespace

Table step_table(const std::vector<ordered_json>& records) {
  // Where an optimizer refreshes, its best and worst step stand beside the mean.
  const bool refreshes = std::any_of(records.begin(), records.end(),
                                     [](const ordered_json& record) { return record.contains("refresh"); });
  const std::string kind = "simulated";
  Table table;
  table.columns = {{"model", ""},
                   {"cluster", ""},
                   {"mesh", ""},
                   {"strategy", ""},
                   {"optimizer", ""},
                   {"confidence", ""},
                   {"forward+backward ms", kind},
                   {"optimizer step ms", kind},
                   {"compute", kind},
                   {"communication", kind},
                   {"waiting", kind},
                   {"iteration ms", kind},
                   {"step over synchronous", kind},
                   {"iteration over synchronous", kind},
                   {"step over layerwise", kind},
                   {"iteration over layerwise", kind}};
  if (refreshes) {
    table.columns.push_back({"refresh", ""});
    table.columns.push_back({"best step ms", kind});
    table.columns.push_back({"worst step ms", kind});
  }
  for (const ordered_json& record : records) {
    table.rows.push_back(
        {record["model"], record["cluster"], mesh_name(record), record["strategy"], record["optimizer"],
         record["confidence"], milli(record["seconds"]["forward_backward"]), milli(record["seconds"]["optimizer_step"]),
         milli(record["parts"]["compute"]), milli(record["parts"]["exposed_communication"]),
         milli(record["parts"]["waiting"]), milli(record["seconds"]["iteration"]),
         times(record["speedup"]["synchronous"]["optimizer_step"]),
         times(record["speedup"]["synchronous"]["iteration"]), times(record["speedup"]["layerwise"]["optimizer_step"]),
         times(record["speedup"]["layerwise"]["iteration"])});
    if (!refreshes) continue;
    const bool own = record.contains("refresh");
    auto& row = table.rows.back();
    row.push_back(own ? fmt::format("{}, every {}", record["refresh"]["mode"].get<std::string>(),
                                    static_cast<std::int64_t>(record["refresh"]["period"].get<double>()))
                      : "–");
    row.push_back(milli(own ? record["refresh"]["best_step"] : record["seconds"]["optimizer_step"]));
    row.push_back(milli(own ? record["refresh"]["worst_step"] : record["seconds"]["optimizer_step"]));
  }
  return table;
}

std::string step_report(const Experiment& experiment, const std::vector<ordered_json>& records,
                        const Table& published) {
  const ordered_json& settings = records.front()["settings"];
  std::string text = fmt::format(
      "\n# {}\n\nMade by `canzona reproduce` from the records in `experiments/results/{}/`; do not edit.\n\n"
      "*simulated*: on the cluster files of `experiments/clusters/`, network model {}, {} tokens per data-parallel "
      "rank in "
      "sequences of {}, gradients in {}, parameters and updates in bf16, uneven collectives {}. **forward+backward** "
      "runs from the "
      "end of the step before to the last gradient bucket reduced on the slowest rank; **optimizer step** from there "
      "to the last "
      "weight applied, plus the gathering of parameters where a strategy blocks on it. Compute, communication "
      "(exposed) and waiting "
      "are parts of the optimizer step in ms, averaged over all GPUs. {}All rows: {}.\n\n{}",
      experiment.title, experiment.name, settings["network"].get<std::string>(),
      settings["tokens_per_gpu"].get<std::int64_t>(), settings["sequence"].get<std::int64_t>(),
      settings["gradient_dtype"].get<std::string>(), settings["uneven"].get<std::string>(), remarks_on(records),
      constant_names(step_table(records)), to_markdown(without_constant_names(step_table(records))));
  for (const std::string& remark : experiment.remarks) text += "\n" + remark + "\n";
  text += "\nCanzona's speed-ups beside the published ones:\n\n" + to_markdown(headline_table(records, published));
  for (const Figure& figure : experiment.figures) {
    text += fmt::format("\n![{}]({})\n\n*{}*\n", figure.caption, figure.file, figure.caption);
  }
  return text;
}

}  // namespace canzona::harness
