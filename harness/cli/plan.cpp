// canzona plan: who would own and compute what, before anything runs.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/record/load_record.hpp"
#include "harness/record/output_file.hpp"
#include "harness/report/load_report.hpp"
#include "reference/core/error.hpp"
#include "reference/plan/json.hpp"
#include "reference/schedule/schedule.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

struct PlanArguments : CommonArguments {
  std::string write_plan;
  std::string write_schedule;
  std::string rank = "0";
};

void print(const std::vector<ordered_json>& records) {
  const ordered_json& first = records.front();
  fmt::print("{}: {} parameters, {} in matrices, {}\n\n", first["model"].get<std::string>(),
             first["parameters"]["total"].get<std::int64_t>(), first["parameters"]["matrix"].get<std::int64_t>(),
             first["optimizer"].get<std::string>());
  if (records.size() == 1) {
    std::string options;
    for (const auto& [name, value] : first["options"]["strategy"].items())
      options += fmt::format(", {} = {}", name, value.get<std::string>());
    fmt::print("{}{}: {} buckets, at most {} micro-groups a rank\n\n{}\n", first["strategy"].get<std::string>(),
               options, first["buckets"].get<int>(), first["micro_groups"]["most"].get<int>(), load_bars(first));
  }
  fmt::print("{}\nper rank, MB is 10⁶ bytes; bytes sent are those of the busiest GPU in one iteration\n\n{}",
             to_text(load_table(records)), to_text(memory_table(records)));
}

int run(const PlanArguments& arguments) {
  const std::vector<Point> points = points_of(arguments);
  const bool writes = !arguments.write_plan.empty() || !arguments.write_schedule.empty();
  if (writes && points.size() != 1)
    throw InputError("", "--strategy", "'all'", "one strategy where a plan or a schedule is written");
  std::unique_ptr<OutputFile> json, plan_file, schedule_file;
  if (!arguments.json.empty()) json = std::make_unique<OutputFile>(arguments.json, "--json");
  if (!arguments.write_plan.empty()) plan_file = std::make_unique<OutputFile>(arguments.write_plan, "--write-plan");
  if (!arguments.write_schedule.empty())
    schedule_file = std::make_unique<OutputFile>(arguments.write_schedule, "--write-schedule");

  std::vector<ordered_json> records;
  std::string plan_text, schedule_text;
  for (const Point& point : points) {
    const Workload workload = make_workload(point.request);
    records.push_back(load_record(point, workload));
    if (plan_file) plan_text = to_json(workload.plan).dump() + "\n";
    if (schedule_file) {
      const auto rank = static_cast<int>(parse_integer("--rank", arguments.rank, 0, workload.mesh.ranks() - 1));
      schedule_text = to_json(make_schedule(workload.plan, workload.model, workload.buffer, rank)).dump(2) + "\n";
    }
  }
  if (plan_file) plan_file->commit(plan_text);
  if (schedule_file) schedule_file->commit(schedule_text);
  if (json) json->commit((records.size() == 1 ? records.front() : ordered_json(records)).dump(2) + "\n");
  if (arguments.json != "-") print(records);
  return kSuccess;
}

}  // namespace

void add_plan(CLI::App& app, Runner& chosen) {
  CLI::App* command = app.add_subcommand("plan", "How a strategy loads each rank: FLOPs, elements, bytes sent, memory");
  const auto arguments = std::make_shared<PlanArguments>();
  arguments->model = "qwen3-32b";
  arguments->dp = "32";
  arguments->tp = "8";
  arguments->optimizer = "muon";
  add_common(*command, *arguments);
  command->add_option("--write-plan", arguments->write_plan, "write the plan itself as JSON")->type_name("FILE");
  command->add_option("--write-schedule", arguments->write_schedule, "write one rank's schedule as JSON")
      ->type_name("FILE");
  command->add_option("--rank", arguments->rank, "the rank for --write-schedule")
      ->type_name("RANK")
      ->capture_default_str();
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
