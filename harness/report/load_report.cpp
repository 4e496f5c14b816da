#include "harness/report/load_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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
std::string tera(const ordered_json& value) { return fmt::format("{:.2f}", value.get<double>() / 1e12); }
std::string mega(const ordered_json& value) { return fmt::format("{:.1f}", value.get<double>() / 1e6); }

std::string repeat(const char* sign, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += sign;
  return text;
}

}  // namespace

Table load_table(const std::vector<ordered_json>& records) {
  Table table;
  table.columns = {{"model", ""},
                   {"mesh", ""},
                   {"strategy", ""},
                   {"optimizer", ""},
                   {"balance dp", "computed"},
                   {"balance gpu", "computed"},
                   {"busiest GPU TFLOP", "computed"}};
  for (const Collective collective : kCollectives) {
    std::string words(name_of(collective));
    std::replace(words.begin(), words.end(), '_', ' ');
    table.columns.push_back({words + " MB", "computed"});
  }
  for (const ordered_json& record : records) {
    std::vector<std::string> row{record["model"],
                                 mesh_name(record),
                                 record["strategy"],
                                 record["optimizer"],
                                 ratio(record["balance"]["dp"]),
                                 ratio(record["balance"]["gpu"]),
                                 tera(record["flops"]["busiest_gpu"])};
    for (const Collective collective : kCollectives)
      row.push_back(mega(record["bytes_sent"][std::string(name_of(collective))]["busiest"]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table memory_table(const std::vector<ordered_json>& records) {
  Table table;
  table.columns = {{"strategy", ""}};
  for (const auto& [purpose, bytes] : records.front()["memory"].items()) {
    std::string words = purpose;
    std::replace(words.begin(), words.end(), '_', ' ');
    table.columns.push_back({words + " MB, busiest", "computed"});
    table.columns.push_back({"mean", "computed"});
  }
  for (const ordered_json& record : records) {
    std::vector<std::string> row{record["strategy"]};
    for (const auto& [purpose, bytes] : record["memory"].items()) {
      row.push_back(mega(bytes["busiest"]));
      row.push_back(mega(bytes["mean"]));
    }
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
  const int tp = record["mesh"]["tp"];
  const double mean = record["flops"]["mean_gpu"];
  const double most = std::max(record["flops"]["busiest_gpu"].get<double>(), 1.0);
  const int run = (dp + kMostBars - 1) / kMostBars;
  std::string text = fmt::format(
      "busiest GPU of each DP rank, TFLOP (× the mean of all GPUs), and elements owned per TP rank [computed]\n");
  for (int first = 0; first < dp; first += run) {
    const int last = std::min(dp, first + run);
    const double load = *std::max_element(gpu.begin() + first * tp, gpu.begin() + last * tp);
    const auto owned = *std::max_element(elements.begin() + first, elements.begin() + last);
    const int length = static_cast<int>(load / most * kWidth + 0.5);
    const std::string name = run == 1 ? fmt::format("dp {}", first) : fmt::format("dp {}–{}", first, last - 1);
    text += fmt::format("{:<12} {}{} {:8.2f} ({:5.2f}×) {:>8.1f} M elements\n", name, repeat("█", length),
                        std::string(kWidth - length, ' '), load / 1e12, mean > 0 ? load / mean : 0,
                        static_cast<double>(owned) / 1e6);
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

std::string load_report(const std::string& title, const std::vector<ordered_json>& records, const Table& published) {
  std::string text =
      "# " + title +
      "\n\nMade by `experiments/reproduce.sh` from the records under `experiments/results/`; do not edit.\n"
      "Every column says its kind. *computed*: exact counts from a plan, with no machine and no model of time behind "
      "them. "
      "*published*: by others, with the source.\n\n"
      "**balance dp** is the busiest data-parallel rank over the mean, in matrix-optimizer FLOPs. **balance gpu** is "
      "the busiest "
      "GPU's FLOPs over (all matrices once ÷ number of GPUs): the same denominator for every strategy, so redundant "
      "work shows. "
      "Bytes are what the busiest GPU sends in one iteration, gradients in fp32, updates and parameters in bf16.\n\n"
      "No plan that keeps a matrix whole can bring **balance gpu** below (largest matrix) ÷ (all matrices ÷ GPUs).\n";
  std::map<std::string, std::size_t> order;
  std::vector<std::vector<ordered_json>> by_mesh;
  for (const ordered_json& record : records) {
    const auto [place, fresh] = order.try_emplace(mesh_name(record), by_mesh.size());
    if (fresh) by_mesh.emplace_back();
    by_mesh[place->second].push_back(record);
  }
  for (const auto& group : by_mesh)
    text += "\n## " + mesh_name(group.front()) + "\n\n" + to_markdown(load_table(group));
  text +=
      "\n## Figures\n\n"
      "![Load of each GPU, Qwen3-32B](figures/load_per_gpu.svg)\n\n"
      "![Busiest GPU over the mean, by model and strategy](figures/load_balance.svg)\n\n"
      "Both by `plots/load.py` from the same records.\n";
  text += "\n## Published\n\n" + to_markdown(published) +
          "\nThese are times on hardware that is not stated; the tables above count work and bytes. Nothing here was "
          "fitted to them.\n";
  return text;
}

}  // namespace canzona::harness
