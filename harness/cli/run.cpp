// canzona run: strategies on real ranks, each a process of an MPI job or a thread of this one.
#include "harness/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/progress.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/run_record.hpp"
#include "harness/report/run_report.hpp"
#include "harness/run/identity.hpp"
#include "harness/simulate/trace.hpp"
#include "optimized/engine/processes.hpp"
#include "optimized/engine/threads.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDeadline = "60";

struct RunArguments : CommonArguments {
  std::string ranks;
  std::string backend = "host";
  std::string steps = "10";
  std::string warmup = "1";
  std::string tokens = "64";
  std::string overlap = "on";
  std::string variant;
  std::string batch = "1";
  std::string micro_batches = "1";
  std::string clip_norm = "1";
  std::string seed = "1";
  std::string deadline = kDeadline;
  std::string trace;
  bool check = false;
};

double deadline_of(const RunArguments& arguments) { return parse_number("--deadline", arguments.deadline, 0.1, 1e6); }

/// dp and tp for so many ranks: what was not given follows.
void settle_mesh(RunArguments& arguments, int ranks) {
  const std::int64_t tp = arguments.tp.empty() ? 1 : positive("--tp", arguments.tp, kMostRanks);
  if (arguments.dp.empty()) arguments.dp = std::to_string(std::max<std::int64_t>(ranks / tp, 1));
  arguments.tp = std::to_string(tp);
  const std::int64_t dp = positive("--dp", arguments.dp, kMostRanks);
  if (dp * tp != ranks) {
    throw InputError("", "the mesh", fmt::format("dp {} × tp {} = {} ranks", dp, tp, dp * tp),
                     fmt::format("the {} that were started (mpirun -np N, or --ranks N for threads)", ranks));
  }
}

RunRequest request_of(RunArguments arguments, int ranks) {
  constexpr std::int64_t kMost = 1'000'000;
  constexpr std::int64_t kMostSamples = 64;  // each is drawn beforehand
  if (arguments.backend != "host") throw InputError("", "--backend", "'" + arguments.backend + "'", "host");
  if (arguments.overlap != "on" && arguments.overlap != "off")
    throw InputError("", "--overlap", "'" + arguments.overlap + "'", "on, off");
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
  request.engine.overlap = arguments.overlap == "on";
  request.engine.tokens = positive("--tokens", arguments.tokens, kMost);
  request.engine.gradient = request.points.front().gradient;
  request.engine.variant = arguments.variant;
  request.steps = positive("--steps", arguments.steps, kMost);
  request.warmup = parse_integer("--warmup", arguments.warmup, 0, kMost);
  request.check = arguments.check;
  request.seed = static_cast<std::uint64_t>(parse_integer("--seed", arguments.seed, 0, INT64_MAX));
  return request;
}

/// A request with everything that can be refused before the first rank starts.
struct Prepared {
  RunRequest request;
  std::vector<Workload> workloads;
  std::unique_ptr<OutputFile> json, trace;  ///< on the rank that writes

  const Mesh& mesh() const { return workloads.front().mesh; }
};

Prepared prepare(const RunArguments& arguments, int ranks, bool writes) {
  Prepared prepared{request_of(arguments, ranks), {}, nullptr, nullptr};
  prepared.workloads = workloads_of(prepared.request);
  optimized::EngineOptimizers::instance().find(prepared.request.points.front().request.optimizer);
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

int finish(const RunArguments& arguments, const Prepared& prepared, const std::vector<StrategyRun>& runs) {
  if (interrupted() || runs.front().turns.empty()) return kInterrupted;
  const ordered_json record = run_record(prepared.request, runs, arguments.ranks.empty() ? "processes" : "threads");
  if (prepared.trace) prepared.trace->commit(text_of(trace_of(runs.front().turns.back(), runs.front().workload.plan)));
  if (prepared.json) prepared.json->commit(text_of(record, 2));
  if (arguments.json != "-" && arguments.trace != "-") fmt::print("{}", to_text(run_table(record)));
  const bool passed =
      std::all_of(runs.begin(), runs.end(), [](const StrategyRun& run) { return !run.check || run.check->passed; });
  return passed ? kSuccess : kCheckFailed;
}

int run_threads(const RunArguments& arguments) {
  if (optimized::is_one_of_several_processes())
    throw InputError("", "--ranks", "'" + arguments.ranks + "'", "not under mpirun or srun, which start the ranks");
  constexpr std::int64_t kMostThreads = 1024;
  const auto ranks = static_cast<int>(positive("--ranks", arguments.ranks, kMostThreads));
  const double deadline = deadline_of(arguments);
  const Prepared prepared = prepare(arguments, ranks, true);
  std::vector<StrategyRun> runs;
  try {
    Progress progress("run", count_turns(prepared));
    optimized::run_on_threads(prepared.mesh(), deadline, [&](optimized::Rank& rank) {
      auto own = run_rank(
          rank, prepared.request, prepared.workloads, [&] { progress.advance(); }, interrupted);
      if (rank.index == 0) runs = std::move(own);
    });
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    fmt::print(stderr, "canzona: {}\n", error.what());
    return kRankFailed;
  }
  return finish(arguments, prepared, runs);
}

int run_process(const RunArguments& arguments) {
  double deadline = 0;
  std::string complaint;
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (const InputError& error) {
      complaint = error.what();
    }
  };
  attempt([&] { deadline = deadline_of(arguments); });
  optimized::Processes processes(complaint.empty() ? deadline : std::stod(kDeadline));
  std::optional<Prepared> prepared;
  if (complaint.empty()) attempt([&] { prepared = prepare(arguments, processes.size(), processes.rank() == 0); });
  const ordered_json identity = prepared ? identity_of(prepared->request) : complaint_of(complaint);
  if (const std::string difference = difference_between(processes.all_gather(identity.dump())); !difference.empty()) {
    if (processes.rank() == 0) throw InputError(difference);
    return kBadInput;
  }
  int code = kSuccess;
  Progress progress("run", count_turns(*prepared));
  processes.run(prepared->mesh(), kRankFailed, [&](optimized::Rank& rank) {
    const auto runs = run_rank(
        rank, prepared->request, prepared->workloads, [&] { progress.advance(); }, interrupted);
    if (rank.index == 0) code = finish(arguments, *prepared, runs);
  });
  return code;
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
  command->get_option("--dp")->description("data-parallel ranks [all ranks ÷ tp]");
  command->get_option("--tp")->description("tensor-parallel ranks [1]");
  const auto text = [&](const char* name, std::string& value, const char* what, const char* type) {
    return command->add_option(name, value, what)->type_name(type)->capture_default_str();
  };
  text("--ranks", arguments->ranks, "run so many ranks as threads of this process", "N");
  text("--backend", arguments->backend, "what ranks compute on: host", "NAME");
  text("--steps", arguments->steps, "iterations that are measured, of every strategy", "N");
  text("--warmup", arguments->warmup, "turns of every strategy before the first that is measured", "N");
  text("--tokens", arguments->tokens, "rows of the activations in forward and backward, per data-parallel rank", "N");
  text("--overlap", arguments->overlap, "on, or off: each step is waited for before the next is begun", "on|off");
  text("--variant", arguments->variant, "how the optimizer's update is computed [its first variant]", "NAME");
  text("--batch", arguments->batch, "samples per data-parallel rank and iteration", "N");
  add_micro_batches(*command, arguments->micro_batches);
  text("--clip-norm", arguments->clip_norm, "largest global norm of the averaged gradient; 0: not clipped", "NORM");
  text("--seed", arguments->seed, "of weights and gradients", "N");
  text("--deadline", arguments->deadline, "how long a rank waits for another before it names it and gives up",
       "SECONDS");
  command
      ->add_option("--trace", arguments->trace,
                   "write the last iteration as a Chrome trace (chrome://tracing, ui.perfetto.dev)")
      ->type_name("FILE");
  command->add_flag("--check", arguments->check,
                    "compare every rank's weights with the reference's dense step; exit code 1 beyond the bound");
  command->callback([arguments, &chosen] {
    chosen = [arguments] { return arguments->ranks.empty() ? run_process(*arguments) : run_threads(*arguments); };
  });
}

}  // namespace canzona::harness
