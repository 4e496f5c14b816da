#include "harness/record/run_record.hpp"

#include "harness/record/memory_record.hpp"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/record/provenance.hpp"
#include "harness/record/step_record.hpp"
#include "reference/model/split.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

using NamedLatency = std::pair<const char*, double StepLatency::*>;
constexpr NamedLatency kLatencies[] = {{"forward_backward", &StepLatency::forward_backward},
                                       {"optimizer_step", &StepLatency::optimizer_step},
                                       {"iteration", &StepLatency::iteration}};
constexpr NamedLatency kParts[] = {{"compute", &StepLatency::compute},
                                   {"exposed_communication", &StepLatency::exposed_communication},
                                   {"waiting", &StepLatency::waiting}};

ordered_json spread_json(const std::vector<double>& samples) {
  const Spread spread = spread_of(samples);
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}, {"samples", samples}};
}

/// values(timeline, iteration) for every measured iteration.
template <class Values>
std::vector<double> sampled(const StrategyRun& run, const Values& values) {
  std::vector<double> samples;
  for (const Timeline& turn : run.turns) {
    for (std::size_t iteration = 1; iteration < turn.steps.front().size(); ++iteration)
      samples.push_back(values(turn, static_cast<int>(iteration)));
  }
  return samples;
}

void add_seconds(ordered_json& json, const StrategyRun& run) {
  const Plan& plan = run.workload.plan;
  const auto of = [&](double StepLatency::*part) {
    return spread_json(sampled(
        run, [&plan, part](const Timeline& turn, int iteration) { return step_latency(turn, plan, iteration).*part; }));
  };
  for (const auto& [name, member] : kLatencies) json["seconds"][name] = of(member);
  for (const auto& [name, member] : kParts) json["parts"][name] = of(member);
  for (const NamedPhase& phase : named_phases()) {
    json["phases"][phase.name] = spread_json(sampled(
        run, [&](const Timeline& turn, int iteration) { return phases_of(turn, plan, iteration).*phase.seconds; }));
  }
  json["timeline"] = slowest_rank(run.turns.back(), plan);
}

ordered_json result_of(const Point& point, const std::string& kind, const StrategyRun& run) {
  ordered_json json;
  json["strategy"] = point.request.strategy;
  json["optimizer"] = point.request.optimizer;
  json["kind"] = kind;
  if (run.check) {
    json["check"] = {{"worst_error", run.check->worst_error},
                     {"bound", run.check->bound},
                     {"passed", run.check->passed},
                     {"parameter", run.check->parameter},
                     {"dp_rank", run.check->dp_rank},
                     {"compared", run.check->compared},
                     {"bound_is", run.check->is_measured ? "response to disturbed gradients" : "derived"},
                     {"parameters", run.check->parameters},
                     {"of", run.workload.model.parameters.size()},
                     {"on_device_in_fp64", run.check->on_device},
                     {"left_out", run.check->left_out}};
  }
  if (kind != optimized::kEmulated) add_seconds(json, run);
  for (const Collective collective : kCollectives) {
    const auto& sent = run.traffic.sent(collective);
    const auto each = static_cast<double>(run.iterations);
    json["bytes_sent"][std::string(name_of(collective))] = {
        {"busiest", static_cast<double>(run.traffic.busiest(collective)) / each},
        {"mean", std::accumulate(sent.begin(), sent.end(), 0.0) / static_cast<double>(sent.size()) / each}};
  }
  json["memory"] = memory_record(run.memory);
  json["orthogonalizations"] = run.matrix_steps;
  json["iterations"] = run.iterations;
  json["skipped"] = run.skipped;
  json["failed_refreshes"] = run.failed_refreshes;
  return json;
}

}  // namespace

std::vector<double> turn_means(const std::vector<double>& samples, std::size_t turns) {
  std::vector<double> means;
  const std::size_t length = samples.size() / turns;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const auto first = samples.begin() + static_cast<std::ptrdiff_t>(turn * length);
    means.push_back(std::accumulate(first, first + static_cast<std::ptrdiff_t>(length), 0.0) /
                    static_cast<double>(length));
  }
  return means;
}

ordered_json run_record(const RunRequest& request, const std::vector<StrategyRun>& runs, const Machines& machines,
                        const std::string& ranks_are) {
  const Point& first = request.points.front();
  const Workload& workload = runs.front().workload;
  const Interleaving turns = interleaving_of(request, workload.cost.refresh_period());
  ordered_json json;
  json["provenance"] = provenance(request.backend.backend->name);
  json["provenance"]["versions"] = request.backend.backend->versions();
  json["provenance"]["nodes"] = machines.names().size();
  if (const std::string& device = machines.devices.front(); !device.empty()) json["provenance"]["device"] = device;
  json["backend"] = request.backend.backend->name;
  json["model"] = workload.model.name;
  json["mesh"] = {{"dp", workload.mesh.dp}, {"tp", workload.mesh.tp}, {"pp", workload.mesh.pp}};
  json["settings"] = {{"ranks_are", ranks_are},
                      {"tokens", request.engine.tokens.count},
                      {"sequence", request.engine.tokens.sequence},
                      {"precision", name_of(request.engine.precision.arithmetic)},
                      {"gradient_dtype", name_of(request.engine.precision.wire.gradient)},
                      {"overlap", request.engine.overlap},
                      {"graphs", request.engine.graphs},
                      {"backend", request.backend.options.values()},
                      {"variant", request.engine.variant},
                      {"batch", workload.training.batch},
                      {"micro_batches", workload.training.micro_batches},
                      {"clip_norm", workload.training.clip_norm},
                      {"split", name_of(first.request.split)},
                      {"seed", request.seed},
                      {"turns", {{"warmup", turns.warmup}, {"measured", turns.count}, {"iterations", turns.measured}}},
                      {"optimizer", workload.optimizer_options.values()}};
  json["results"] = ordered_json::array();
  for (std::size_t index = 0; index < runs.size(); ++index)
    json["results"].push_back(result_of(request.points[index], request.backend.backend->kind, runs[index]));
  return json;
}

void add_predictions(ordered_json& record, const std::vector<Point>& points,
                     const std::vector<SimulationSettings>& settings) {
  const auto turns = record["settings"]["turns"]["measured"].get<std::size_t>();
  std::map<std::string, std::vector<double>> errors;
  for (std::size_t index = 0; index < points.size(); ++index) {
    std::vector<StepLatency> latencies;
    for (const SimulationSettings& own : settings) latencies.push_back(simulate_point(points[index], own).latency);
    ordered_json& result = record["results"][index];
    ordered_json predicted{{"kind", "simulated"}};
    for (const auto& [name, member] : kLatencies) {
      const double measured = spread_of(turn_means(result["seconds"][name]["samples"], turns)).median;
      std::vector<double> seconds;
      for (const StepLatency& latency : latencies) seconds.push_back(latency.*member);
      const double simulated = spread_of(std::move(seconds)).median;
      const double error = simulated / measured - 1;
      predicted["seconds"][name] = simulated;
      predicted["relative_error"][name] = error;
      errors[name].push_back(std::abs(error));
    }
    result["predicted"] = std::move(predicted);
  }
  record["prediction"]["cluster"] = settings.front().cluster.name;
  for (const auto& [name, member] : kLatencies)
    record["prediction"]["median_relative_error"][name] = spread_of(errors[name]).median;
}

}  // namespace canzona::harness
