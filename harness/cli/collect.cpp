// canzona collect: the table, records and report of a study from the records of its launches.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/cli/command.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/study_record.hpp"
#include "harness/report/study_report.hpp"

namespace canzona::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct CollectArguments {
  std::string folder;
};

/// In it and below, by name; none where there is no such folder.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<ordered_json> read_json(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream) return {};
  return ordered_json::parse(stream);
}

/// A file a point, which holds the reason.
std::vector<std::pair<std::string, std::string>> failed_in(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> failed;
  for (const fs::path& file : files_in(folder, ".txt")) {
    std::ifstream stream(file);
    std::string reason;
    std::getline(stream, reason);
    failed.emplace_back(file.stem().string(), reason);
  }
  return failed;
}

bool has_passed(const ordered_json& check) {
  const ordered_json& results = check["results"];
  return std::all_of(results.begin(), results.end(), [](const auto& own) { return own["check"]["passed"] == true; });
}

int run(const CollectArguments& arguments) {
  const fs::path folder = arguments.folder;
  const std::vector<ordered_json> records = study_records(read_runs(folder / "records"));
  const Table table = study_table(records);
  const std::optional<ordered_json> environment = read_json(folder / "environment.json");
  StudyNotes notes;
  if (environment) notes.environment = &*environment;
  notes.failed = failed_in(folder / "failed");
  for (const fs::path& figure : files_in(folder / "figures", ".svg"))
    notes.figures.push_back(fs::relative(figure, folder).string());
  std::vector<ordered_json> checks;
  for (const fs::path& file : files_in(folder / "checks", ".json")) checks.push_back(*read_json(file));
  for (const ordered_json& record : records)
    OutputFile(folder / "study" / (study_name(record) + ".json"), "the study").commit(text_of(record, 2));
  OutputFile(folder / "measured.csv", "the table").commit(to_csv(table));
  OutputFile(folder / "report.md", "the report").commit(study_report(records, checks, notes));
  fmt::print("{}", to_text(without_constant_names(table)));
  return std::all_of(checks.begin(), checks.end(), has_passed) ? kSuccess : kCheckFailed;
}

}  // namespace

void add_collect(CLI::App& app, Runner& chosen) {
  CLI::App* command = app.add_subcommand("collect",
                                         "Gather the launches of a study (experiments/cluster.sh) into a table, "
                                         "records for figures and a report; exit code 1 where a check failed");
  const auto arguments = std::make_shared<CollectArguments>();
  command->add_option("folder", arguments->folder, "of the study; its records/ hold records of 'canzona run'")
      ->required();
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
