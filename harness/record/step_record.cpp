#include "harness/record/step_record.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/record/provenance.hpp"
#include "reference/core/error.hpp"
#include "reference/model/split.hpp"
#include "reference/plan/load.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBaselines[] = {"synchronous", "layerwise"};

/// What a refresh makes of the optimizer step: every step of a period, its best and its worst.
ordered_json refresh_of(const SimulatedPoint& simulated) {
  ordered_json steps = ordered_json::array();
  double best = HUGE_VAL, worst = 0, period = 0;
  for (std::size_t index = 0; index < simulated.latencies.size(); ++index) {
    const double seconds = simulated.latencies[index].optimizer_step;
    steps.push_back({{"seconds", seconds}, {"times", simulated.times[index]}});
    best = std::min(best, seconds);
    worst = std::max(worst, seconds);
    period += simulated.times[index];
  }
  return {{"period", period},
          {"mode", simulated.workload.optimizer_options.text("refresh")},
          {"best_step", best},
          {"worst_step", worst},
          {"steps", std::move(steps)}};
}

/// The iterations of a period that have to be run: those in which some matrix is refreshed, and of those between at
/// most two, the second of which stands for the rest.
struct Kept {
  std::vector<std::int64_t> iterations;
  std::vector<double> times;
};

Kept kept_iterations(const Workload& workload) {
  const std::int64_t period = workload.cost.refresh_period();
  std::set<std::int64_t> due;
  for (std::size_t parameter = 0; parameter < workload.turns.size(); ++parameter) {
    if (workload.model.parameters[parameter].routing != Routing::matrix) continue;
    for (const std::int64_t turn : workload.turns[parameter]) due.insert((period - turn) % period);
  }
  Kept kept;
  std::int64_t idle = 0;  // iterations without a refresh since the last
  for (std::int64_t iteration = 0; iteration < period; ++iteration) {
    idle = due.contains(iteration) ? 0 : idle + 1;
    if (idle > 2) {
      ++kept.times.back();
    } else {
      kept.iterations.push_back(iteration);
      kept.times.push_back(1);
    }
  }
  return kept;
}

ordered_json record_of(const Point& point, const SimulationSettings& settings, const SimulatedPoint& simulated,
                       const std::map<std::string, StepLatency>& latencies) {
  const Workload& workload = simulated.workload;
  const StepLatency& own = simulated.latency;
  const Loads loads = loads_of(workload.plan, workload.model, workload.cost);
  ordered_json json;
  json["provenance"] = provenance("simulator");
  json["kind"] = "simulated";
  json["model"] = workload.model.name;
  json["cluster"] = settings.cluster.name;
  json["mesh"] = {{"dp", workload.mesh.dp}, {"tp", workload.mesh.tp}, {"pp", workload.mesh.pp}};
  json["strategy"] = point.request.strategy;
  json["optimizer"] = point.request.optimizer;
  json["settings"] = {{"network", settings.cluster.collective_seconds.empty() ? "nccl" : "measured"},
                      {"gpu", settings.cluster.gpu.name},
                      {"nvlink_bytes_per_second", settings.cluster.nvlink_bytes_per_second},
                      {"nic_bytes_per_second", settings.cluster.nic_bytes_per_second},
                      {"tokens_per_gpu", settings.training.tokens},
                      {"sequence", settings.training.sequence},
                      {"gradient_dtype", name_of(point.gradient)},
                      {"uneven", name_of(settings.uneven)},
                      {"overlap", settings.overlap && settings.cluster.can_overlap()},
                      {"micro_batches", workload.training.micro_batches},
                      {"split", name_of(point.request.split)},
                      {"strategy", workload.plan.options},
                      {"optimizer", workload.optimizer_options.values()}};
  json["seconds"] = {
      {"forward_backward", own.forward_backward}, {"optimizer_step", own.optimizer_step}, {"iteration", own.iteration}};
  json["parts"] = {
      {"compute", own.compute}, {"exposed_communication", own.exposed_communication}, {"waiting", own.waiting}};
  for (const char* baseline : kBaselines) {
    const StepLatency& other = latencies.at(baseline);
    json["speedup"][baseline] = {{"optimizer_step", other.optimizer_step / own.optimizer_step},
                                 {"iteration", other.iteration / own.iteration}};
  }
  if (workload.optimizer->refresh_cost) json["refresh"] = refresh_of(simulated);
  json["confidence"] = is_low_confidence(workload, settings.cluster) ? "low" : "normal";
  json["balance"] = {{"dp", loads.dp_balance()}, {"gpu", loads.gpu_balance()}, {"gpu_bound", loads.gpu_bound()}};
  json["timeline"] = slowest_rank(simulated.timeline, workload.plan);
  return json;
}

}  // namespace

ordered_json slowest_rank(const Timeline& timeline, const Plan& plan) {
  const std::size_t last = timeline.steps.front().size() - 1;
  const Nanoseconds origin = step_end(timeline, plan, static_cast<int>(last) - 1);
  std::size_t slowest = 0;
  Nanoseconds latest = 0;
  for (std::size_t unit = 0; unit < timeline.schedules.size(); ++unit) {
    for (std::size_t index = 0; index < timeline.schedules[unit].steps.size(); ++index) {
      const bool is_update = std::holds_alternative<Update>(timeline.schedules[unit].steps[index].action);
      if (is_update && timeline.steps[unit][last][index].end > latest) {
        latest = timeline.steps[unit][last][index].end;
        slowest = unit;
      }
    }
  }
  const Nanoseconds end = step_end(timeline, plan, static_cast<int>(last));
  ordered_json steps = ordered_json::array();
  for (const std::size_t iteration : {last - 1, last}) {
    for (std::size_t index = 0; index < timeline.schedules[slowest].steps.size(); ++index) {
      const Step& step = timeline.schedules[slowest].steps[index];
      const Interval& interval = timeline.steps[slowest][iteration][index];
      if (interval.end <= origin || interval.begin >= end) continue;
      const std::string name = describe(step.action);
      steps.push_back({{"name", name.substr(0, name.find('('))},
                       {"stream", std::string(canzona::name_of(step.stream))},
                       {"begin", static_cast<double>(std::max(interval.begin, origin) - origin) * 1e-9},
                       {"end", static_cast<double>(std::min(interval.end, end) - origin) * 1e-9}});
    }
  }
  return {{"rank", timeline.classes[slowest].representative}, {"steps", std::move(steps)}};
}

SimulatedPoint simulate_point(const Point& point, const SimulationSettings& settings) {
  Workload workload = make_workload(point.request);
  const auto network = network_of(settings.cluster);
  const WireTypes wire{point.gradient, settings.cluster.weights, settings.cluster.weights};
  std::vector<Durations> durations;  // by rank, or of all
  for (const Cluster& own : settings.ranks.empty() ? std::vector{settings.cluster} : settings.ranks)
    durations.emplace_back(point.request.config, workload, own, *network, settings.training, wire, settings.uneven);
  const Kept kept = kept_iterations(workload);
  const auto period = static_cast<std::int64_t>(kept.iterations.size());
  Iterations iterations;
  iterations.count = static_cast<int>(period) + 1;
  iterations.overlap = settings.overlap && settings.cluster.can_overlap();
  iterations.micro_batches = workload.training.micro_batches;
  iterations.period = period;
  if (period > 1) iterations.turns = workload.turns;
  iterations.ranks_differ = !settings.ranks.empty();
  Timeline timeline = simulate(
      workload.plan, workload.model, workload.buffer,
      [&](const Action& action, int rank, std::int64_t iteration) {
        const Durations& own = durations[iterations.ranks_differ ? static_cast<std::size_t>(rank) : 0];
        return own.of(action, rank, kept.iterations[static_cast<std::size_t>(iteration)]);
      },
      iterations);
  // The first iteration has nothing to wait for; the last is the first of the period.
  std::vector<StepLatency> latencies;
  std::vector<double> times;
  for (std::int64_t iteration = 1; iteration <= period; ++iteration) {
    latencies.push_back(step_latency(timeline, workload.plan, static_cast<int>(iteration)));
    times.push_back(kept.times[static_cast<std::size_t>(iteration % period)]);
  }
  const StepLatency average = mean(latencies, times);
  return {std::move(workload), std::move(timeline), std::move(latencies), std::move(times), average};
}

std::vector<ordered_json> step_records(const std::vector<Point>& points, const SimulationSettings& settings) {
  std::map<std::string, StepLatency> latencies;
  for (const char* baseline : kBaselines) {
    Point point = points.front();
    point.request.strategy = baseline;
    latencies[baseline] = simulate_point(point, settings).latency;
  }
  std::vector<ordered_json> records;
  for (const Point& point : points)
    records.push_back(record_of(point, settings, simulate_point(point, settings), latencies));
  return records;
}

}  // namespace canzona::harness
