#include "harness/report/load_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/experiment/toml_file.hpp"
#include "reference/plan/traffic.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

std::string mesh_name(const ordered_json& record) {
  return fmt::format("dp {} × tp {}", record["mesh"]["dp"].get<int>(), record["mesh"]["tp"].get<int>());
}

std::string ratio(const ordered_json& value) { return fmt::format("{:.2f}", value.get<double>()); }
std::string mega(const ordered_json& value) { return fmt::format("{:.1f}", value.get<double>() / 1e6); }

/// 10¹² FLOP with two decimals, or three digits where that would show nothing.
std::string tera(double flops) {
  return flops >= 1e10 ? fmt::format("{:.2f}", flops / 1e12) : fmt::format("{:.3g}", flops / 1e12);
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string repeat(const char* sign, long count) {
  std::string text;
  for (long i = 0; i < count; ++i) text += sign;
  return text;
}

}  // namespace

/// All but the agreement on the gradient: 560 bytes to every other rank of a group.
constexpr std::array kTabled{Collective::reduce_gradients, Collective::gather_shards, Collective::scatter_updates,
                             Collective::gather_parameters};

Table load_table(const std::vector<ordered_json>& records) {
  Table table;
  table.columns = {{"model", ""},
                   {"mesh", ""},
                   {"strategy", ""},
                   {"optimizer", ""},
                   {"balance dp", "computed"},
                   {"balance gpu", "computed"},
                   {"bound", "computed"},
                   {"busiest GPU TFLOP", "computed"}};
  for (const Collective collective : kTabled) {
    table.columns.push_back({words(std::string(name_of(collective))) + " MB", "computed"});
  }
  for (const ordered_json& record : records) {
    const bool has_matrices = record["flops"]["total"] > 0.0;
    const auto figure = [&](const std::string& text) { return has_matrices ? text : "–"; };
    std::vector<std::string> row{record["model"],
                                 mesh_name(record),
                                 record["strategy"],
                                 record["optimizer"],
                                 figure(ratio(record["balance"]["dp"])),
                                 figure(ratio(record["balance"]["gpu"])),
                                 figure(ratio(record["balance"]["gpu_bound"])),
                                 figure(tera(record["flops"]["busiest_gpu"]))};
    for (const Collective collective : kTabled) {
      row.push_back(mega(record["bytes_sent"][std::string(name_of(collective))]["busiest"]));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<LoadGroup> grouped(const std::vector<ordered_json>& records) {
  std::vector<LoadGroup> groups;
  for (const ordered_json& record : records) {
    const std::string name = mesh_name(record) + ", " + record["optimizer"].get<std::string>();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const LoadGroup& other) { return other.name == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->records.push_back(record);
  }
  return groups;
}

namespace {

std::string fit_of(const ordered_json& record) {
  const double lacks =
      record["memory"]["total"]["busiest"].get<double>() - record["memory_limit"]["bytes"].get<double>();
  return lacks > 0 ? fmt::format("lacks {:.1f} MB", lacks / 1e6) : "fits";
}

}  // namespace

Table memory_table(const std::vector<ordered_json>& records) {
  Table table;
  table.columns = {{"strategy", ""}};
  for (const auto& [purpose, bytes] : records.front()["memory"].items()) {
    table.columns.push_back({words(purpose) + " MB", "computed"});
  }
  const bool is_limited = records.front().contains("memory_limit");
  if (is_limited) table.columns.push_back({records.front()["memory_limit"]["gpu"], "computed"});
  for (const ordered_json& record : records) {
    std::vector<std::string> row{record["strategy"]};
    for (const auto& [purpose, bytes] : record["memory"].items()) row.push_back(mega(bytes["busiest"]));
    if (is_limited) row.push_back(fit_of(record));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string load_bars(const ordered_json& record) {
  constexpr int kMostBars = 64;
  constexpr int kWidth = 50;
  const auto gpu = record["loads"]["gpu"].get<std::vector<double>>();
  const auto elements = record["shard_elements"].get<std::vector<std::int64_t>>();
  const int dp = record["mesh"]["dp"];
  const std::ptrdiff_t tp = record["mesh"]["tp"];
  const double share = record["flops"]["share"];
  const double most = std::max(record["flops"]["busiest_gpu"].get<double>(), 1.0);
  const int run = (dp + kMostBars - 1) / kMostBars;
  std::string text =
      "busiest GPU of each DP rank, TFLOP (× an equal share), and elements owned per TP rank [computed]\n";
  for (int first = 0; first < dp; first += run) {
    const int last = std::min(dp, first + run);
    const double load = *std::max_element(gpu.begin() + first * tp, gpu.begin() + last * tp);
    const auto owned = *std::max_element(elements.begin() + first, elements.begin() + last);
    const long length = std::lround(load / most * kWidth);
    const std::string name = run == 1 ? fmt::format("dp {}", first) : fmt::format("dp {}–{}", first, last - 1);
    text += fmt::format("{:<12} {}{} {:>8} ({:5.2f}×) {:>8.1f} M elements\n", name, repeat("█", length),
                        std::string(static_cast<std::size_t>(kWidth - length), ' '), tera(load),
                        share > 0 ? load / share : 0, static_cast<double>(owned) / 1e6);
  }
  return text;
}

Table published_table(const std::filesystem::path& path) {
  const toml::table file = read_toml(path);
  TomlTable reader(file, path.string());
  Table table;
  table.columns = {{"what", ""}, {"figure", "published"}, {"source", ""}};
  for (TomlTable& figure : reader.tables("figure")) {
    const std::string what = figure.text("what");
    table.rows.push_back({what, figure.text("value"), figure.text("source")});
    figure.finish();
  }
  reader.finish();
  return table;
}

std::string load_report(const Experiment& experiment, const std::vector<ordered_json>& records) {
  const std::string gradient = records.front()["gradient_dtype"];
  std::string text = fmt::format(
      "# {}\n\nMade by `canzona reproduce` from the records in `experiments/results/{}/`; do not edit.\n\n"
      "Every column says its kind. *computed*: exact counts from a plan, with no machine and no model of time behind "
      "them.\n\n"
      "**balance dp**: busiest data-parallel rank ÷ mean, in matrix-optimizer FLOPs. **balance gpu**: busiest GPU's "
      "FLOPs ÷ an "
      "equal share, (all matrices once) ÷ GPUs; the same denominator for every strategy, so redundant work shows. "
      "**bound**: "
      "largest matrix ÷ an equal share; no plan that keeps a matrix on one GPU goes below it. Megabytes (10⁶ bytes) "
      "are what "
      "the busiest GPU sends in one iteration, gradients in {}, updates and parameters in bf16.\n",
      experiment.title, experiment.name, gradient);
  for (const LoadGroup& group : grouped(records)) {
    text += fmt::format("\n## {}\n\n{}", group.name, to_markdown(without_constant_names(load_table(group.records))));
  }
  for (const std::string& remark : experiment.remarks) text += "\n" + remark + "\n";
  for (const Figure& figure : experiment.figures)
    text += fmt::format("\n![{}]({})\n\n*{}*\n", figure.caption, figure.file, figure.caption);
  return text;
}

std::string published_report(const Table& published) {
  return "\n# Published\n\n" + to_markdown(published) +
         "\nOn hardware that is not stated. Nothing above was fitted to these figures.\n";
}

}  // namespace canzona::harness
