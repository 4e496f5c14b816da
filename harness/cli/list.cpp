// canzona list: what there is to choose from, as it describes itself.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/command.hpp"
#include "harness/experiment/paths.hpp"
#include "harness/record/output_file.hpp"
#include "optimized/engine/backend.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

template <class Entry>
ordered_json described(const Entry& entry) {
  ordered_json options = ordered_json::array();
  for (const OptionDescription& option : entry.options) {
    options.push_back({{"name", option.name},
                       {"default", option.standard},
                       {"allowed", allowed_values(option.kind)},
                       {"unit", option.unit},
                       {"help", option.help}});
  }
  return {{"name", entry.name}, {"description", entry.description}, {"citation", entry.citation}, {"options", options}};
}

ordered_json everything() {
  ordered_json json;
  json["models"] = ordered_json::array();
  for (const std::string& name : model_names()) {
    const Model model = build_model(find_model(name), 1);
    json["models"].push_back({{"name", name},
                              {"parameters", model.parameter_count()},
                              {"matrix_parameters", model.matrix_parameter_count()}});
  }
  std::sort(json["models"].begin(), json["models"].end(),
            [](const ordered_json& a, const ordered_json& b) { return a["parameters"] < b["parameters"]; });
  json["strategies"] = ordered_json::array();
  for (const Strategy& strategy : Strategies::instance().all()) json["strategies"].push_back(described(strategy));
  json["optimizers"] = ordered_json::array();
  for (const auto& optimizer : reference::Optimizers::instance().all())
    json["optimizers"].push_back(described(optimizer));
  json["backends"] = ordered_json::array();
  for (const auto& backend : optimized::Backends::instance().all()) json["backends"].push_back(described(backend));
  return json;
}

void print(const ordered_json& json) {
  fmt::print("models\n");
  for (const auto& model : json["models"]) {
    fmt::print("  {:<12} {:>15} parameters, {:>15} in matrices\n", model["name"].get<std::string>(),
               model["parameters"].get<std::int64_t>(), model["matrix_parameters"].get<std::int64_t>());
  }
  for (const char* kind : {"strategies", "optimizers", "backends"}) {
    fmt::print("\n{}\n", kind);
    for (const auto& entry : json[kind]) {
      fmt::print("  {:<14} {}\n  {:<14} {}\n", entry["name"].get<std::string>(),
                 entry["description"].get<std::string>(), "", entry["citation"].get<std::string>());
      for (const auto& option : entry["options"]) {
        const std::string unit = option["unit"];
        fmt::print("  {:<14}   {} = {}{}  {} ({})\n", "", option["name"].get<std::string>(),
                   option["default"].get<std::string>(), unit.empty() ? "" : " [" + unit + "]",
                   option["help"].get<std::string>(), option["allowed"].get<std::string>());
      }
    }
  }
}

}  // namespace

void add_list(CLI::App& app, Runner& chosen) {
  CLI::App* command =
      app.add_subcommand("list", "Models, strategies, optimizers and backends, with their options and defaults");
  const auto json = std::make_shared<std::string>();
  command->add_option("--json", *json, "write the list as JSON to FILE, or to standard output with -")
      ->type_name("FILE");
  const auto kind = std::make_shared<std::string>();
  command->add_option("--names", *kind, "only the names of models, strategies, optimizers or backends, one a line")
      ->type_name("KIND")
      ->check(CLI::IsMember({"models", "strategies", "optimizers", "backends"}));
  command->callback([json, kind, &chosen] {
    chosen = [json, kind] {
      const ordered_json list = everything();
      if (!kind->empty()) {
        for (const auto& entry : list[*kind]) fmt::print("{}\n", entry["name"].get<std::string>());
        return kSuccess;
      }
      if (!json->empty()) OutputFile(*json, "--json").commit(text_of(list, 2));
      if (*json != "-") print(list);
      return kSuccess;
    };
  });
}

}  // namespace canzona::harness
