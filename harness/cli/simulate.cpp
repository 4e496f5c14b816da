// canzona simulate: how long a step would take on a cluster.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/step_record.hpp"
#include "harness/report/step_report.hpp"
#include "harness/simulate/trace.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

struct SimulateArguments : CommonArguments {
  std::string cluster = "h100-256";
  std::string tokens_per_gpu = "8192";
  std::string sequence = "4096";
  std::string uneven = "per-owner";
  std::string overlap = "on";
  std::string trace;
  std::string micro_batches = "1";
};

SimulationSettings simulation_of(const SimulateArguments& arguments) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  SimulationSettings settings;
  settings.cluster = find_cluster(arguments.cluster);
  settings.training.tokens = positive("--tokens-per-gpu", arguments.tokens_per_gpu, kMostTokens);
  settings.training.sequence = positive("--sequence", arguments.sequence, kMostTokens);
  settings.uneven = parse_uneven(arguments.uneven);
  if (arguments.overlap != "on" && arguments.overlap != "off")
    throw InputError("", "--overlap", "'" + arguments.overlap + "'", "on, off");
  settings.overlap = arguments.overlap == "on";
  return settings;
}

int run(const SimulateArguments& arguments) {
  std::vector<Point> points = points_of(arguments);
  constexpr std::int64_t kMostMicroBatches = 4096;
  const auto micro_batches = static_cast<int>(positive("--micro-batches", arguments.micro_batches, kMostMicroBatches));
  for (Point& point : points) point.request.training = {.batch = micro_batches, .micro_batches = micro_batches};
  const SimulationSettings settings = simulation_of(arguments);
  if (!arguments.trace.empty() && points.size() != 1)
    throw InputError("", "--strategy", "'all'", "one strategy where a trace is written");
  if (!arguments.trace.empty() && arguments.trace == arguments.json)
    throw InputError("", "--trace", "'" + arguments.trace + "', like --json", "another file");
  const std::vector<ordered_json> records = step_records(points, settings);
  std::string trace;
  if (!arguments.trace.empty()) {
    const SimulatedPoint simulated = simulate_point(points.front(), settings);
    trace = text_of(trace_of(simulated.timeline, simulated.workload.plan));
  }
  const auto json = open_output(arguments.json, "--json");
  const auto trace_file = open_output(arguments.trace, "--trace");
  if (trace_file) trace_file->commit(trace);
  if (json) json->commit(text_of(records.size() == 1 ? records.front() : ordered_json(records), 2));
  if (arguments.json != "-" && arguments.trace != "-")
    fmt::print("{}", to_text(without_constant_names(step_table(records))));
  return kSuccess;
}

}  // namespace

void add_simulate(CLI::App& app, Runner& chosen) {
  CLI::App* command =
      app.add_subcommand("simulate", "How long a step would take on a cluster, and the speed-ups between strategies");
  const auto arguments = std::make_shared<SimulateArguments>();
  arguments->model = "qwen3-32b";
  arguments->dp = "32";
  arguments->tp = "8";
  arguments->optimizer = "muon";
  add_common(*command, *arguments);
  command
      ->add_option("--cluster", arguments->cluster,
                   "a cluster of experiments/clusters, or the path of a TOML file; it must have dp·tp GPUs or more")
      ->type_name("NAME|PATH")
      ->capture_default_str();
  command
      ->add_option("--tokens-per-gpu", arguments->tokens_per_gpu,
                   "tokens that each data-parallel rank trains on in one iteration")
      ->type_name("TOKENS")
      ->capture_default_str();
  command->add_option("--sequence", arguments->sequence, "tokens in a sequence")
      ->type_name("TOKENS")
      ->capture_default_str();
  add_micro_batches(*command, arguments->micro_batches);
  command->add_option("--uneven", arguments->uneven, "how uneven collectives are made: per-owner, padded, send-recv")
      ->type_name("WAY")
      ->capture_default_str();
  command->add_option("--overlap", arguments->overlap, "on, or off: one step after another on every rank")
      ->type_name("on|off")
      ->capture_default_str();
  command
      ->add_option("--trace", arguments->trace,
                   "write one iteration as a Chrome trace (chrome://tracing, ui.perfetto.dev)")
      ->type_name("FILE");
  command->get_option("--json")->description(
      "write the record as JSON to FILE, or to standard output with -: an object, or an array with --strategy all");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
