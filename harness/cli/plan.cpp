// canzona plan: who would own and compute what, before anything runs.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/launch.hpp"
#include "harness/record/load_record.hpp"
#include "harness/record/memory_record.hpp"
#include "harness/record/output_file.hpp"
#include "harness/report/load_report.hpp"
#include "optimized/engine/footprint.hpp"
#include "reference/core/error.hpp"
#include "reference/core/parallel.hpp"
#include "reference/plan/json.hpp"
#include "reference/schedule/schedule.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

struct PlanArguments : CommonArguments {
  std::string write_plan;
  std::string write_schedule;
  std::string rank = "0";
  bool memory = false;
  std::string cluster;
  std::string precision = "bf16";
  std::string tokens = "8192";
  std::string sequence;
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
  fmt::print(
      "{}\nbalance dp: busiest DP rank ÷ mean; balance gpu: busiest GPU ÷ an equal share, (all matrices once) ÷ GPUs; "
      "bound:\n"
      "largest matrix ÷ an equal share. MB: 10⁶ bytes sent by the busiest GPU in one iteration above, held by the "
      "fullest below.\n\n{}",
      to_text(without_constant_names(load_table(records))), to_text(memory_table(records)));
}

/// At most one result may go to standard output, and then nothing else does.
bool uses_standard_output(const PlanArguments& arguments) {
  const int count = (arguments.json == "-") + (arguments.write_plan == "-") + (arguments.write_schedule == "-");
  if (count > 1)
    throw InputError("", "-", "given to several options",
                     "standard output for one of --json, --write-plan, --write-schedule");
  return count == 1;
}

/// By rank, what `canzona run` would take.
ordered_json memory_of_run(const PlanArguments& arguments, const Point& point, const Workload& workload) {
  optimized::EngineSettings settings;
  settings.precision = precision_of(arguments.precision, point.gradient);
  settings.tokens = tokens_of(arguments.tokens, arguments.sequence);
  std::vector<optimized::Ledger> ranks(static_cast<std::size_t>(workload.mesh.ranks()));
  for_each_in_parallel(workload.mesh.ranks(), [&](int rank) {
    ranks[static_cast<std::size_t>(rank)] = optimized::footprint(workload, rank, settings);
  });
  return memory_record(ranks);
}

/// What a GPU of the cluster has.
void add_limit(std::vector<ordered_json>& records, const PlanArguments& arguments) {
  if (!arguments.memory) throw InputError("", "--cluster", "'" + arguments.cluster + "'", "with --memory only");
  const Cluster cluster = find_cluster(arguments.cluster);
  if (cluster.gpu.memory_bytes == 0)
    throw InputError(arguments.cluster, "'memory_bytes'", "missing", "what each of its GPUs has");
  for (ordered_json& record : records)
    record["memory_limit"] = {{"gpu", cluster.gpu.name}, {"bytes", cluster.gpu.memory_bytes}};
}

int run(const PlanArguments& arguments) {
  const std::vector<Point> points = points_of(arguments);
  const auto rank =
      static_cast<int>(parse_integer("--rank", arguments.rank, 0, points.front().request.mesh.ranks() - 1));
  const bool quiet = uses_standard_output(arguments);
  if (points.size() != 1 && !(arguments.write_plan.empty() && arguments.write_schedule.empty())) {
    throw InputError("", "--strategy", "'all'", "one strategy where a plan or a schedule is written");
  }
  std::vector<Workload> workloads;
  for (const Point& point : points) workloads.push_back(make_workload(point.request));

  const auto json = open_output(arguments.json, "--json");
  const auto plan_file = open_output(arguments.write_plan, "--write-plan");
  const auto schedule_file = open_output(arguments.write_schedule, "--write-schedule");

  std::vector<ordered_json> records;
  for (std::size_t index = 0; index < points.size(); ++index)
    records.push_back(load_record(points[index], workloads[index]));
  for (std::size_t index = 0; arguments.memory && index < points.size(); ++index)
    records[index]["memory"] = memory_of_run(arguments, points[index], workloads[index]);
  if (!arguments.cluster.empty()) add_limit(records, arguments);
  const Workload& first = workloads.front();
  if (plan_file) plan_file->commit(text_of(to_json(first.plan)));
  if (schedule_file)
    schedule_file->commit(text_of(to_json(make_schedule(first.plan, first.model, first.buffer, rank)), 2));
  if (json) json->commit(text_of(records.size() == 1 ? records.front() : ordered_json(records), 2));
  if (!quiet) print(records);
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
  command->add_flag(
      "--memory", arguments->memory,
      "memory of a rank as 'canzona run' would take it, by purpose, but for collectives, in place of a training "
      "framework's");
  const auto text = [&](const char* name, std::string& value, const char* what, const char* type) {
    return command->add_option(name, value, what)->type_name(type)->capture_default_str();
  };
  command
      ->add_option(
          "--cluster", arguments->cluster,
          "whose GPU's memory a rank is held against, for --memory: a cluster of experiments/clusters, or a path")
      ->type_name("NAME|PATH");
  text("--precision", arguments->precision, "of weights, activations and updates, for --memory", "DTYPE");
  text("--tokens", arguments->tokens, "of a micro-batch, for --memory", "N");
  text("--sequence", arguments->sequence, "tokens of a sequence, for --memory [4096, or all tokens where fewer]", "N");
  command->get_option("--json")->description(
      "write the record as JSON to FILE, or to standard output with -: an object, or an array with --strategy all");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
