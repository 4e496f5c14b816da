#include "harness/record/study_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/record/run_record.hpp"
#include "harness/run/timing.hpp"
#include "reference/core/error.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kBaselines[] = {"synchronous", "layerwise"};

/// What launches must have in common to be launches of one point.
ordered_json conditions_of(const ordered_json& run) {
  return {{"backend", run["backend"]}, {"revision", run["provenance"]["revision"]}, {"settings", run["settings"]}};
}

/// The results of one point in all launches.
struct Launches {
  std::vector<const ordered_json*> runs;
  std::vector<const ordered_json*> results;
};

/// Over all launches, a sample a refresh period.
Spread pooled(const Launches& launches, const char* group, const std::string& name, std::size_t* count = nullptr) {
  std::vector<double> samples;
  for (std::size_t launch = 0; launch < launches.runs.size(); ++launch) {
    const auto turns = (*launches.runs[launch])["settings"]["turns"]["measured"].get<std::size_t>();
    for (const double mean : turn_means((*launches.results[launch])[group][name]["samples"], turns))
      samples.push_back(mean);
  }
  if (count != nullptr) *count = samples.size();
  return spread_of(samples);
}

std::string machine_of(const ordered_json& run) {
  const ordered_json& provenance = run["provenance"];
  if (provenance.contains("device")) return provenance["device"];
  return provenance["machine"]["processor"];
}

ordered_json record_of(const Launches& launches) {
  const ordered_json& run = *launches.runs.back();
  const ordered_json& result = *launches.results.back();
  ordered_json json;
  json["kind"] = result["kind"];
  json["model"] = run["model"];
  json["cluster"] = machine_of(run);
  json["mesh"] = run["mesh"];
  json["strategy"] = result["strategy"];
  json["optimizer"] = result["optimizer"];
  json["revision"] = run["provenance"]["revision"];
  json["backend"] = run["backend"];
  json["settings"] = run["settings"];
  json["launches"] = launches.runs.size();
  for (const auto& [name, ignored] : result["seconds"].items()) {
    std::size_t samples = 0;
    const Spread spread = pooled(launches, "seconds", name, &samples);
    json["seconds"][name] = spread.median;
    json["spread"][name] = {{"low", spread.low}, {"high", spread.high}, {"samples", samples}};
  }
  for (const auto& [name, ignored] : result["parts"].items())
    json["parts"][name] = pooled(launches, "parts", name).median;
  if (result.contains("predicted")) {
    json["predicted"]["cluster"] = run["prediction"]["cluster"];
    for (const auto& [name, seconds] : result["predicted"]["seconds"].items()) {
      json["predicted"]["seconds"][name] = seconds;
      json["predicted"]["relative_error"][name] = seconds.get<double>() / json["seconds"][name].get<double>() - 1;
    }
  }
  json["timeline"] = result["timeline"];
  return json;
}

bool alike(const ordered_json& a, const ordered_json& b) {
  return a["model"] == b["model"] && a["mesh"] == b["mesh"] && a["optimizer"] == b["optimizer"];
}

/// As registered, among those of one model, mesh and optimizer; unknown ones last.
void order_strategies(std::vector<ordered_json>& records) {
  const auto place_of = [](const ordered_json& record) {
    const auto& all = Strategies::instance().all();
    return std::find_if(all.begin(), all.end(), [&](const Strategy& own) { return own.name == record["strategy"]; }) -
           all.begin();
  };
  for (std::size_t first = 0; first < records.size();) {
    const auto begin = records.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = std::stable_partition(begin, records.end(),
                                           [head = *begin](const ordered_json& record) { return alike(record, head); });
    std::stable_sort(begin, end, [&](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
    first = static_cast<std::size_t>(end - records.begin());
  }
}

/// Over those baselines of the same model, mesh and optimizer that are there.
void add_speedups(std::vector<ordered_json>& records) {
  for (ordered_json& record : records) {
    record["speedup"] = ordered_json::object();
    for (const char* baseline : kBaselines) {
      const auto other = std::find_if(records.begin(), records.end(), [&](const ordered_json& candidate) {
        return candidate["strategy"] == baseline && alike(candidate, record);
      });
      if (other == records.end()) continue;
      for (const char* name : {"optimizer_step", "iteration"})
        record["speedup"][baseline][name] =
            (*other)["seconds"][name].get<double>() / record["seconds"][name].get<double>();
    }
  }
}

}  // namespace

std::vector<ordered_json> read_runs(const fs::path& folder) {
  std::error_code error;
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.insert(entry.path());
  }
  if (files.empty())
    throw InputError("", "the folder of records", "'" + folder.string() + "'",
                     "one that holds records of 'canzona run'");
  std::vector<ordered_json> runs;
  for (const fs::path& file : files) {
    std::ifstream stream(file);
    ordered_json run = ordered_json::parse(stream, nullptr, false);
    const bool is_timed = run.is_object() && run.contains("results") && !run["results"].empty() &&
                          run["results"][0].contains("seconds") && run["results"][0].contains("timeline");
    if (!is_timed)
      throw InputError(file.string(), "the file", "something else", "a record of 'canzona run' that holds seconds");
    run["file"] = file.filename().string();
    runs.push_back(std::move(run));
  }
  return runs;
}

std::vector<ordered_json> study_records(const std::vector<ordered_json>& runs) {
  std::vector<Launches> points;
  std::map<ordered_json, std::size_t> places;
  for (const ordered_json& run : runs) {
    for (const ordered_json& result : run["results"]) {
      const ordered_json key{run["model"], run["mesh"], result["optimizer"], result["strategy"]};
      const auto place = places.try_emplace(key, points.size()).first->second;
      if (place == points.size()) points.emplace_back();
      Launches& point = points[place];
      if (!point.runs.empty() && conditions_of(*point.runs.front()) != conditions_of(run)) {
        throw InputError(fmt::format("{} and {} measured one point under different settings, or with different builds",
                                     (*point.runs.front())["file"].get<std::string>(), run["file"].get<std::string>()));
      }
      point.runs.push_back(&run);
      point.results.push_back(&result);
    }
  }
  std::vector<ordered_json> records;
  for (const Launches& point : points) records.push_back(record_of(point));
  order_strategies(records);
  add_speedups(records);
  return records;
}

}  // namespace canzona::harness
