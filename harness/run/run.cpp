#include "harness/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/record/memory_record.hpp"
#include "harness/run/clock.hpp"
#include "optimized/engine/footprint.hpp"

namespace canzona::harness {
namespace {

using nlohmann::json;
using optimized::Engine;
using optimized::Rank;

reference::Objective<float> objective_of(const RunRequest& request) {
  reference::Objective<float> objective(request.seed);
  objective.recur(optimized::kGradientPeriod);
  return objective;
}

/// What a rank tells of one strategy.
json report_of(Engine& engine, const json& turns) {
  json report;
  report["turns"] = turns;
  report["steps"] = engine.steps();
  report["matrix_steps"] = engine.matrix_steps();
  report["failed_refreshes"] = engine.failed_refreshes();
  for (const optimized::Purpose purpose : optimized::kPurposes) report["memory"].push_back(engine.memory().of(purpose));
  for (const Collective collective : kCollectives)
    report["sent"].push_back(engine.traffic().sent(collective)[static_cast<std::size_t>(engine.schedule().rank)]);
  return report;
}

/// [[begin, end], …] by step, for each iteration of a turn, on the first rank's clock.
json turn_of(const Engine& engine, std::int64_t iterations, const AlignedClock& clock) {
  const double ahead = clock.offset().seconds;
  json turn = json::array();
  for (std::int64_t iteration = engine.iterations() - iterations; iteration < engine.iterations(); ++iteration) {
    std::vector<double> flat;
    for (const optimized::StepTime& step : engine.times(iteration)) {
      flat.push_back(step.begin - ahead);
      flat.push_back(step.end - ahead);
    }
    turn.push_back(std::move(flat));
  }
  return turn;
}

std::vector<optimized::StepTime> step_times(const json& flat) {
  std::vector<optimized::StepTime> times;
  for (std::size_t step = 0; step + 1 < flat.size(); step += 2) times.push_back({flat[step], flat[step + 1]});
  return times;
}

/// One strategy's results from what its ranks tell.
StrategyRun assemble(const Workload& workload, const std::vector<json>& reports, std::int64_t iterations) {
  StrategyRun run{
      .workload = workload, .turns = {}, .traffic = Traffic(workload.mesh.ranks()), .memory = {}, .check = {}};
  for (std::size_t turn = 0; turn < reports.front()["turns"].size(); ++turn) {
    MeasuredTimes times;
    for (const json& report : reports) {
      auto& of_rank = times.emplace_back();
      for (const json& iteration : report["turns"][turn]) of_rank.push_back(step_times(iteration));
    }
    run.turns.push_back(measured_timeline(workload, times));
  }
  run.iterations = iterations;
  run.skipped = iterations - reports.front()["steps"].get<std::int64_t>();
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    run.matrix_steps += reports[rank]["matrix_steps"].get<std::int64_t>();
    run.failed_refreshes += reports[rank]["failed_refreshes"].get<std::int64_t>();
    optimized::Ledger& memory = run.memory.emplace_back();
    for (std::size_t index = 0; index < optimized::kPurposes.size(); ++index)
      memory.add(optimized::kPurposes[index], reports[rank]["memory"][index].get<std::int64_t>());
    for (std::size_t index = 0; index < kCollectives.size(); ++index)
      run.traffic.add(kCollectives[index], static_cast<int>(rank), reports[rank]["sent"][index].get<std::int64_t>());
  }
  return run;
}

}  // namespace

Interleaving interleaving_of(const RunRequest& request, std::int64_t refresh_period) {
  Interleaving turns;
  turns.measured = std::min(refresh_period, request.steps);
  turns.count = (request.steps + turns.measured - 1) / turns.measured;
  turns.warmup = request.warmup;
  return turns;
}

std::vector<Workload> workloads_of(const RunRequest& request) {
  std::vector<Workload> workloads;
  for (const Point& point : request.points) workloads.push_back(make_workload(point.request));
  return workloads;
}

std::string misfit(Rank& rank, const RunRequest& request, const std::vector<Workload>& workloads) {
  optimized::Ledger all;
  for (const Workload& workload : workloads) {
    const optimized::Ledger own = optimized::footprint(workload, rank, request.engine);
    for (const optimized::Purpose purpose : optimized::kPurposes) all.add(purpose, own.of(purpose));
  }
  std::string complaint;
  if (all.total() > rank.free_bytes) {
    complaint = fmt::format("rank {} would take {}; {:.3g} GB are free{}", rank.index, describe(all),
                            static_cast<double>(rank.free_bytes) / 1e9,
                            workloads.size() > 1 ? " (all strategies at once: --strategy takes one)" : "");
  }
  for (const std::string& text : rank.world.all_gather(complaint)) {
    if (!text.empty()) return text;
  }
  return {};
}

std::vector<StrategyRun> run_rank(Rank& rank, const RunRequest& request, const std::vector<Workload>& workloads,
                                  const RunHooks& hooks) {
  const reference::Objective<float> objective = objective_of(request);
  const Interleaving turns = interleaving_of(request, workloads.front().cost.refresh_period());
  optimized::EngineSettings settings = request.engine;
  settings.kept_iterations = static_cast<std::size_t>(1 + turns.measured);
  AlignedClock clock(rank);
  std::vector<Engine*> engines;
  std::vector<json> measured;
  std::vector<Ended> ended(workloads.size());
  for (const Workload& workload : workloads) {
    engines.push_back(&rank.make<Engine>(workload, rank, objective, settings));
    measured.push_back(json::array());
  }
  for (std::int64_t turn = 0; turn < turns.warmup + turns.count; ++turn) {
    const auto stops = rank.world.all_gather(hooks.interrupted() ? "stop" : "");
    if (std::count(stops.begin(), stops.end(), "stop") > 0) break;
    if (turn >= turns.warmup) hooks.before_turn();
    for (std::size_t index = 0; index < engines.size(); ++index) {
      clock.align();
      rank.world.all_gather("");  // all begin together
      for (std::int64_t iteration = 0; iteration <= turns.measured; ++iteration) {
        engines[index]->iterate();
        ended[index].agreements.push_back(engines[index]->agreement());
      }
      engines[index]->finish();
      if (turn >= turns.warmup) measured[index].push_back(turn_of(*engines[index], 1 + turns.measured, clock));
      if (rank.index == 0) hooks.advance();
    }
  }
  Targets targets(objective, settings.precision, engines.front()->iterations(), settings.variant);
  std::vector<std::vector<json>> reports;
  for (std::size_t index = 0; index < engines.size(); ++index) {
    const std::vector<std::uint8_t> bytes = json::to_cbor(report_of(*engines[index], measured[index]));
    auto& of_strategy = reports.emplace_back();
    for (const std::string& text : rank.world.gather(std::string(bytes.begin(), bytes.end())))
      of_strategy.push_back(json::from_cbor(text));
    if (!request.check) continue;
    ended[index].sample = sample_of(workloads[index], targets, *request.check, request.seed);
    for (const auto& [parameter, by] : ended[index].sample.chosen)
      ended[index].held[parameter] = gather_held(rank, workloads[index], *engines[index], parameter);
  }
  if (rank.index != 0) return {};
  // From here on rank 0 is alone: nobody waits for what takes long.
  std::vector<StrategyRun> runs;
  for (std::size_t index = 0; index < engines.size(); ++index) {
    runs.push_back(assemble(workloads[index], reports[index], engines[index]->iterations()));
    if (request.check) runs.back().check = check(workloads[index], targets, ended[index], rank);
  }
  return runs;
}

}  // namespace canzona::harness
