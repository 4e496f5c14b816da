// canzona run: strategies on real ranks, each a process of an MPI job or a thread of this one.
#include "harness/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/calibrate/calibrate.hpp"
#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/launch.hpp"
#include "harness/cli/progress.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/run_record.hpp"
#include "harness/report/run_report.hpp"
#include "harness/run/identity.hpp"
#include "harness/run/machines.hpp"
#include "harness/simulate/trace.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

/// The cluster that is measured in the same launch, between the turns of strategies.
constexpr const char* kSelf = "self";

/// Every parameter is checked.
constexpr const char* kAll = "all";

struct RunArguments : CommonArguments {
  LaunchArguments launch;
  std::string steps = "10";
  std::string warmup = "1";
  std::string precision = "fp32";
  std::string overlap = "on";
  std::string graphs;
  std::string variant;
  std::string batch = "1";
  std::string micro_batches = "1";
  std::string clip_norm = "1";
  std::string seed = "1";
  std::string trace;
  std::string predict;
  std::string check;
  std::string check_flops = "1e13";
};

bool is_on(const std::string& option, const std::string& value) {
  if (value != "on" && value != "off") throw InputError("", option, "'" + value + "'", "on, off");
  return value == "on";
}

/// Unless told otherwise, where the backend has them.
bool wants_graphs(const RunArguments& arguments, const optimized::Backend& backend) {
  if (arguments.graphs.empty()) return backend.has_graphs;
  const bool wants = is_on("--graphs", arguments.graphs);
  if (wants && !backend.has_graphs) throw InputError("", "--graphs of backend " + backend.name, "'on'", "off");
  return wants;
}

std::optional<CheckRequest> check_of(const RunArguments& arguments) {
  if (arguments.check.empty()) return {};
  CheckRequest check;
  if (arguments.check != kAll) check.of_each_kind = positive("--check", arguments.check, 1'000'000);
  check.flops = parse_number("--check-flops", arguments.check_flops, 0, 1e30);
  return check;
}

RunRequest request_of(RunArguments arguments, int ranks) {
  constexpr std::int64_t kMost = 1'000'000;
  constexpr std::int64_t kMostSamples = 64;  // each is drawn beforehand
  settle_mesh(arguments, ranks);
  RunRequest request;
  request.points = points_of(arguments);
  if (!arguments.trace.empty() && request.points.size() != 1)
    throw InputError("", "--strategy", "'all'", "one strategy where a trace is written");
  if (!arguments.trace.empty() && arguments.trace == arguments.json)
    throw InputError("", "--trace", "'" + arguments.trace + "', like --json", "another file");
  for (Point& point : request.points) {
    point.request.training = {
        .batch = static_cast<int>(positive("--batch", arguments.batch, kMostSamples)),
        .micro_batches = static_cast<int>(positive("--micro-batches", arguments.micro_batches, kMostSamples)),
        .clip_norm = parse_number("--clip-norm", arguments.clip_norm, 0, 1e30)};
  }
  request.engine.overlap = is_on("--overlap", arguments.overlap);
  request.engine.tokens = tokens_of(arguments.launch.tokens, arguments.launch.sequence);
  request.engine.precision = precision_of(arguments.precision, request.points.front().gradient);
  request.engine.variant = arguments.variant;
  request.steps = positive("--steps", arguments.steps, kMost);
  request.warmup = parse_integer("--warmup", arguments.warmup, 0, kMost);
  request.check = check_of(arguments);
  request.predicts_itself = arguments.predict == kSelf;
  request.backend = backend_of(arguments.launch);
  request.engine.graphs = wants_graphs(arguments, *request.backend.backend);
  request.seed = static_cast<std::uint64_t>(parse_integer("--seed", arguments.seed, 0, INT64_MAX));
  return request;
}

/// A request with everything that can be refused before the first rank starts.
struct Prepared {
  RunRequest request;
  std::vector<Workload> workloads;
  /// One, whose cluster is not known yet where that is kSelf; in the end there is one a turn then.
  std::vector<SimulationSettings> predictions;
  std::unique_ptr<OutputFile> json, trace;  ///< on the rank that writes

  const Mesh& mesh() const { return workloads.front().mesh; }
};

/// The same iteration on a cluster's figures.
SimulationSettings prediction_of(const RunRequest& request, const std::string& cluster) {
  SimulationSettings settings;
  if (request.predicts_itself) {
    settings.cluster.name = kSelf;
    settings.cluster.gpus = settings.cluster.gpus_per_node = request.points.front().request.mesh.ranks();
    settings.cluster.weights = request.engine.precision.wire.parameter;
  } else {
    settings.cluster = find_cluster(cluster);
  }
  settings.training.sequence = request.engine.tokens.sequence;
  settings.training.tokens = request.engine.tokens.count * request.points.front().request.training.micro_batches;
  settings.overlap = request.engine.overlap;
  require_fitting(request.points.front().request.mesh, settings.cluster);
  if (const DType weights = request.engine.precision.wire.parameter; weights != settings.cluster.weights) {
    throw InputError("", "--precision", fmt::format("'{}'", name_of(weights)),
                     fmt::format("{}, in which the weights of cluster {} are", name_of(settings.cluster.weights),
                                 settings.cluster.name));
  }
  return settings;
}

/// Each turn from what every rank achieved just before it.
std::vector<SimulationSettings> predictions_from(std::vector<std::vector<Cluster>> rounds,
                                                 const SimulationSettings& settings) {
  std::vector<SimulationSettings> predictions;
  for (std::vector<Cluster>& ranks : rounds) {
    predictions.push_back(settings);
    predictions.back().cluster = ranks.front();
    predictions.back().cluster.name = kSelf;
    predictions.back().ranks = std::move(ranks);
  }
  return predictions;
}

Prepared prepare(const RunArguments& arguments, int ranks, bool writes) {
  Prepared prepared{request_of(arguments, ranks), {}, {}, nullptr, nullptr};
  prepared.workloads = workloads_of(prepared.request);
  optimized::EngineOptimizers::instance()
      .find(prepared.request.points.front().request.optimizer)
      .require_variant(prepared.request.engine.variant);
  const bool wants_times = !arguments.predict.empty() || !arguments.trace.empty();
  if (wants_times && prepared.request.backend.backend->kind == optimized::kEmulated)
    throw InputError("an emulated device tells no time: there is nothing to trace or to predict");
  if (!arguments.predict.empty()) prepared.predictions = {prediction_of(prepared.request, arguments.predict)};
  if (writes) {
    prepared.json = open_output(arguments.json, "--json");
    prepared.trace = open_output(arguments.trace, "--trace");
  }
  return prepared;
}

std::size_t count_turns(const Prepared& prepared) {
  const Interleaving turns = interleaving_of(prepared.request, prepared.workloads.front().cost.refresh_period());
  return static_cast<std::size_t>(turns.warmup + turns.count) * prepared.workloads.size();
}

int finish(const RunArguments& arguments, const Prepared& prepared, const Machines& machines,
           const std::vector<StrategyRun>& runs) {
  if (interrupted() || runs.front().turns.empty()) return kInterrupted;
  ordered_json record =
      run_record(prepared.request, runs, machines, arguments.launch.ranks.empty() ? "processes" : "threads");
  if (!prepared.predictions.empty()) add_predictions(record, prepared.request.points, prepared.predictions);
  if (prepared.trace) prepared.trace->commit(text_of(trace_of(runs.front().turns.back(), runs.front().workload.plan)));
  if (prepared.json) prepared.json->commit(text_of(record, 2));
  if (arguments.json != "-" && arguments.trace != "-")
    fmt::print("{}{}{}", to_text(run_table(record)), check_text(record), prediction_text(record));
  const bool passed =
      std::all_of(runs.begin(), runs.end(), [](const StrategyRun& run) { return !run.check || run.check->passed; });
  return passed ? kSuccess : kCheckFailed;
}

int run(const RunArguments& arguments) {
  std::optional<Prepared> prepared;
  std::optional<Progress> progress;
  Machines machines;
  std::vector<StrategyRun> runs;
  std::string refusal;
  const auto prepare_rank = [&](int ranks, bool writes) {
    prepared = prepare(arguments, ranks, writes);
    if (writes) progress.emplace("run", count_turns(*prepared));
    return Launch{prepared->mesh(), identity_of(prepared->request)};
  };
  const auto body = [&](optimized::Rank& rank) {
    const std::string why = misfit(rank, prepared->request, prepared->workloads);
    if (rank.index == 0) refusal = why;
    if (!why.empty()) return;
    if (Machines of_all = machines_of(rank); rank.index == 0) machines = std::move(of_all);
    RunHooks hooks{.advance = [&] { progress->advance(); }, .interrupted = interrupted};
    Calibration* calibration = nullptr;
    if (prepared->request.predicts_itself) {
      const CalibrationRequest figures{prepared->request.points.front(), prepared->request.engine.tokens,
                                       prepared->request.engine.precision.wire.parameter};
      calibration = &rank.make<Calibration>(rank, figures, prepared->workloads.front());
      hooks.before_turn = [calibration] { calibration->measure_round(); };
    }
    auto own = run_rank(rank, prepared->request, prepared->workloads, hooks);
    if (rank.index == 0) runs = std::move(own);
    if (calibration == nullptr || !calibration->has_measured()) return;  // interrupted before
    auto rounds = calibration->rounds();
    if (rank.index == 0) prepared->predictions = predictions_from(std::move(rounds), prepared->predictions.front());
  };
  return launch(arguments.launch, prepare_rank, body, [&] {
    progress.reset();
    if (!refusal.empty()) throw InputError(refusal);
    return finish(arguments, *prepared, machines, runs);
  });
}

}  // namespace

void add_run(CLI::App& app, Runner& chosen) {
  CLI::App* command = app.add_subcommand(
      "run", "Run strategies on real ranks (processes under mpirun or srun, or --ranks N threads) and measure them");
  const auto arguments = std::make_shared<RunArguments>();
  arguments->model = "qwen3-tiny";
  arguments->optimizer = "muon";
  arguments->bucket_size = "1000000";
  add_common(*command, *arguments);
  command->get_option("--bucket-size")->capture_default_str();
  const auto text = [&](const char* name, std::string& value, const char* what, const char* type) {
    return command->add_option(name, value, what)->type_name(type)->capture_default_str();
  };
  add_launch(*command, arguments->launch);
  text("--steps", arguments->steps, "iterations that are measured, of every strategy", "N");
  text("--warmup", arguments->warmup, "turns of every strategy before the first that is measured", "N");
  text(
      "--precision", arguments->precision,
      "of the orthogonalization's products, of updates as they travel and of weights: fp32, bf16 or fp16 (masters stay "
      "in fp32)",
      "DTYPE");
  text("--overlap", arguments->overlap, "on, or off: each step is waited for before the next is begun", "on|off");
  command
      ->add_option("--graphs", arguments->graphs,
                   "on: updates are launched as CUDA graphs, captured in their second step of a form [on, where the "
                   "backend has them]")
      ->type_name("on|off");
  text("--variant", arguments->variant, "how the optimizer's update is computed [its first variant]", "NAME");
  text("--batch", arguments->batch, "samples per data-parallel rank and iteration", "N");
  add_micro_batches(*command, arguments->micro_batches);
  text("--clip-norm", arguments->clip_norm, "largest global norm of the averaged gradient; 0: not clipped", "NORM");
  text("--seed", arguments->seed, "of weights and gradients", "N");
  command
      ->add_option("--trace", arguments->trace,
                   "write the last iteration as a Chrome trace (chrome://tracing, ui.perfetto.dev)")
      ->type_name("FILE");
  text("--predict", arguments->predict,
       "a cluster file of 'canzona calibrate', or self, which measures its figures between the turns of this launch: "
       "what "
       "'canzona simulate' predicts from it stands beside what was measured",
       "NAME|PATH|self");
  command
      ->add_flag("--check{all}", arguments->check,
                 "compare every rank's weights with the reference's dense step; exit code 1 beyond the bound. "
                 "--check=N: of N parameters of each kind, drawn by --seed")
      ->type_name("");
  text("--check-flops", arguments->check_flops,
       "that the reference may do for one parameter of a sample; beyond that the device does what it can in fp64, and "
       "the rest is left out",
       "FLOPS");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
