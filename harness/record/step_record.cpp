#include "harness/record/step_record.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/record/provenance.hpp"
#include "reference/core/error.hpp"
#include "reference/model/split.hpp"
#include "reference/plan/load.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBaselines[] = {"synchronous", "layerwise"};

/// What the rank whose last matrix update ends last does, from the end of the step before to the end of this.
ordered_json slowest_rank(const SimulatedPoint& simulated) {
  const Timeline& timeline = simulated.timeline;
  const std::size_t last = timeline.steps.front().size() - 1;
  const Nanoseconds origin = step_end(timeline, simulated.workload.plan, static_cast<int>(last) - 1);
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
  const Nanoseconds end = step_end(timeline, simulated.workload.plan, static_cast<int>(last));
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

/// What a refresh makes of the optimizer step: every step of a period, its best and its worst.
ordered_json refresh_of(const SimulatedPoint& simulated) {
  std::vector<double> steps;
  for (const StepLatency& latency : simulated.latencies) steps.push_back(latency.optimizer_step);
  return {{"period", steps.size()},
          {"mode", simulated.workload.optimizer_options.text("refresh")},
          {"best_step", *std::min_element(steps.begin(), steps.end())},
          {"worst_step", *std::max_element(steps.begin(), steps.end())},
          {"steps", steps}};
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
  json["settings"] = {{"network", "nccl"},
                      {"gpu", settings.cluster.gpu.name},
                      {"nvlink_bytes_per_second", settings.cluster.nvlink_bytes_per_second},
                      {"nic_bytes_per_second", settings.cluster.nic_bytes_per_second},
                      {"tokens_per_gpu", settings.training.tokens},
                      {"sequence", settings.training.sequence},
                      {"gradient_dtype", name_of(point.gradient)},
                      {"uneven", name_of(settings.uneven)},
                      {"overlap", settings.overlap},
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
  json["timeline"] = slowest_rank(simulated);
  return json;
}

}  // namespace

SimulatedPoint simulate_point(const Point& point, const SimulationSettings& settings) {
  Workload workload = make_workload(point.request);
  const auto network = nccl_network(settings.cluster);
  const WireTypes wire{point.gradient, DType::bf16, DType::bf16};
  const Durations durations(point.request.config, workload, settings.cluster, *network, settings.training, wire,
                            settings.uneven);
  const std::int64_t period = workload.cost.refresh_period();
  Iterations iterations;
  iterations.count = static_cast<int>(period) + 1;
  iterations.overlap = settings.overlap;
  iterations.micro_batches = workload.training.micro_batches;
  iterations.period = period;
  if (period > 1) iterations.turns = workload.turns;
  Timeline timeline = simulate(
      workload.plan, workload.model, workload.buffer,
      [&](const Action& action, int rank, std::int64_t iteration) { return durations.of(action, rank, iteration); },
      iterations);
  std::vector<StepLatency> latencies;
  for (int iteration = 1; iteration < iterations.count; ++iteration)
    latencies.push_back(step_latency(timeline, workload.plan, iteration));
  const StepLatency average = mean(latencies);
  return {std::move(workload), std::move(timeline), std::move(latencies), average};
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
