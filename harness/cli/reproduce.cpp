// canzona reproduce: runs the experiments of experiments/paper and writes records, tables and the report.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/progress.hpp"
#include "harness/experiment/paths.hpp"
#include "harness/record/load_record.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/step_record.hpp"
#include "harness/report/load_report.hpp"
#include "harness/report/step_report.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct ReproduceArguments {
  std::string experiments;
  std::string results;
  std::string report;
};

std::vector<fs::path> experiment_files(const fs::path& place) {
  std::error_code unknown;
  if (!fs::exists(place, unknown))
    throw InputError("", "--experiments", "'" + place.string() + "'", "a TOML file, or a folder of them");
  if (!fs::is_directory(place, unknown)) return {place};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(place)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  if (files.empty())
    throw InputError("", "--experiments", "'" + place.string() + "'", "a folder that holds TOML files");
  std::sort(files.begin(), files.end());
  return files;
}

/// Runs the points and writes each record as soon as it is whole.
std::vector<ordered_json> run_loads(const Experiment& experiment, const fs::path& folder,
                                    std::set<std::string>& names) {
  std::vector<ordered_json> records;
  Progress progress(experiment.name, experiment.points.size());
  for (const Point& point : experiment.points) {
    if (interrupted()) break;
    names.insert(point.name() + ".json");
    OutputFile file(folder / (point.name() + ".json"), "--results");
    records.push_back(load_record(point));
    file.commit(text_of(records.back()));
    progress.advance();
  }
  return records;
}

/// The same for simulated steps; the strategies of one model, mesh and optimizer share their baselines.
std::vector<ordered_json> run_steps(const Experiment& experiment, const fs::path& folder,
                                    std::set<std::string>& names) {
  std::vector<ordered_json> records;
  Progress progress(experiment.name, experiment.points.size() * experiment.simulations.size());
  const auto alike = [](const Point& a, const Point& b) {
    return a.request.config.name == b.request.config.name && a.request.mesh == b.request.mesh &&
           a.request.optimizer == b.request.optimizer;
  };
  for (const SimulationSettings& simulation : experiment.simulations) {
    for (std::size_t first = 0; first < experiment.points.size() && !interrupted();) {
      std::vector<Point> group;
      while (first < experiment.points.size() && (group.empty() || alike(group.front(), experiment.points[first]))) {
        group.push_back(experiment.points[first++]);
      }
      const std::vector<ordered_json> made = step_records(group, simulation);
      for (std::size_t index = 0; index < group.size(); ++index) {
        const std::string name = group[index].name() + "-" + simulation.cluster.name + ".json";
        names.insert(name);
        OutputFile(folder / name, "--results").commit(text_of(made[index]));
        records.push_back(made[index]);
        progress.advance();
      }
    }
  }
  return records;
}

/// Records of points that the experiment no longer has would spoil its figures.
void remove_other_records(const fs::path& folder, const std::set<std::string>& names) {
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json" && !names.contains(entry.path().filename().string()))
      others.push_back(entry.path());
  }
  for (const fs::path& other : others) fs::remove(other);
}

void print(const Experiment& experiment, const std::vector<ordered_json>& records) {
  fmt::print("{}\n", experiment.title);
  if (experiment.kind == ExperimentKind::step) {
    fmt::print("\n{}\n", to_text(without_constant_names(step_table(records))));
    return;
  }
  for (const LoadGroup& group : grouped(records))
    fmt::print("\n{}\n{}", group.name, to_text(without_constant_names(load_table(group.records))));
  fmt::print("\n");
}

int run(const ReproduceArguments& arguments) {
  std::vector<Experiment> experiments;
  for (const fs::path& file : experiment_files(arguments.experiments)) experiments.push_back(read_experiment(file));
  const Table published = published_table(project_folder() / "paper/published.toml");
  const fs::path results = arguments.results;
  OutputFile report(arguments.report, "--report");
  std::string text;
  for (const Experiment& experiment : experiments) {
    const bool is_load = experiment.kind == ExperimentKind::load;
    const fs::path folder = results / experiment.name;
    OutputFile csv(folder.string() + ".csv", "--results");
    OutputFile markdown(folder.string() + ".md", "--results");
    std::set<std::string> names;
    const std::vector<ordered_json> records =
        is_load ? run_loads(experiment, folder, names) : run_steps(experiment, folder, names);
    if (interrupted()) return kInterrupted;
    remove_other_records(folder, names);
    const Table table = is_load ? load_table(records) : step_table(records);
    csv.commit(to_csv(table));
    markdown.commit("# " + experiment.title + "\n\n" + to_markdown(table));
    text += is_load ? load_report(experiment, records) : step_report(experiment, records, published);
    print(experiment, records);
  }
  report.commit(text + published_report(published));
  return kSuccess;
}

}  // namespace

void add_reproduce(CLI::App& app, Runner& chosen) {
  CLI::App* command =
      app.add_subcommand("reproduce", "Run the files of experiments/paper; write records, tables and the report");
  const auto arguments = std::make_shared<ReproduceArguments>();
  arguments->experiments = (project_folder() / "experiments/paper").string();
  arguments->results = (project_folder() / "experiments/results").string();
  arguments->report = (project_folder() / "paper/report.md").string();
  command->add_option("--experiments", arguments->experiments, "a TOML file, or a folder of them")
      ->type_name("PATH")
      ->capture_default_str();
  command->add_option("--results", arguments->results, "where records, CSV and Markdown go")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_option("--report", arguments->report, "the report to write")->type_name("FILE")->capture_default_str();
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
