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
#include "harness/report/load_report.hpp"
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
std::vector<ordered_json> run_points(const Experiment& experiment, const fs::path& folder) {
  std::vector<ordered_json> records;
  Progress progress(experiment.name, experiment.points.size());
  for (const Point& point : experiment.points) {
    if (interrupted()) break;
    OutputFile file(folder / (point.name() + ".json"), "--results");
    records.push_back(load_record(point));
    file.commit(text_of(records.back()));
    progress.advance();
  }
  return records;
}

/// Records of points that the experiment no longer has would spoil its figures.
void remove_other_records(const Experiment& experiment, const fs::path& folder) {
  std::set<std::string> own;
  for (const Point& point : experiment.points) own.insert(point.name() + ".json");
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json" && !own.contains(entry.path().filename().string()))
      others.push_back(entry.path());
  }
  for (const fs::path& other : others) fs::remove(other);
}

int run(const ReproduceArguments& arguments) {
  std::vector<Experiment> experiments;
  for (const fs::path& file : experiment_files(arguments.experiments)) experiments.push_back(read_experiment(file));
  const Table published = published_table(project_folder() / "paper/published.toml");
  const fs::path results = arguments.results;
  OutputFile report(arguments.report, "--report");
  std::string text;
  for (const Experiment& experiment : experiments) {
    const fs::path folder = results / experiment.name;
    OutputFile csv(folder.string() + ".csv", "--results");
    OutputFile markdown(folder.string() + ".md", "--results");
    const std::vector<ordered_json> records = run_points(experiment, folder);
    if (interrupted()) return kInterrupted;
    remove_other_records(experiment, folder);
    const Table table = load_table(records);
    csv.commit(to_csv(table));
    markdown.commit("# " + experiment.title + "\n\n" + to_markdown(table));
    text += load_report(experiment, records);
    fmt::print("{}\n", experiment.title);
    for (const LoadGroup& group : grouped(records)) {
      fmt::print("\n{}\n{}", group.name, to_text(without_constant_names(load_table(group.records))));
    }
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
