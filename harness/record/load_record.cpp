#include "harness/record/load_record.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/record/provenance.hpp"
#include "reference/model/split.hpp"
#include "reference/plan/load.hpp"
#include "reference/plan/traffic.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

ordered_json busiest_and_mean(const std::vector<std::int64_t>& values) {
  const auto sum = std::accumulate(values.begin(), values.end(), std::int64_t{0});
  return {{"busiest", *std::max_element(values.begin(), values.end())},
          {"mean", static_cast<double>(sum) / static_cast<double>(values.size())}};
}

ordered_json bytes_sent(const Workload& workload, DType gradient) {
  const Traffic traffic =
      traffic_of(workload.plan, workload.model, workload.buffer, {gradient, DType::bf16, DType::bf16});
  ordered_json json;
  for (const Collective collective : kOptimizerCollectives)
    json[std::string(name_of(collective))] = busiest_and_mean(traffic.sent(collective));
  return json;
}

ordered_json memory(const Workload& workload, DType gradient) {
  const StateMemory state = state_memory(workload.plan, workload.model, workload.buffer, workload.cost, gradient);
  const std::int64_t numel = workload.buffer.numel();
  const auto everywhere = [](std::int64_t bytes) { return ordered_json{{"busiest", bytes}, {"mean", bytes}}; };
  return {{"model_weights", everywhere(numel * bytes_of(DType::bf16))},
          {"gradients", everywhere(numel * bytes_of(gradient))},
          {"master_weights", busiest_and_mean(state.master_weights)},
          {"optimizer_state", busiest_and_mean(state.optimizer_state)},
          {"gathered_matrices", busiest_and_mean(state.gathered_matrices)}};
}

ordered_json micro_groups(const Plan& plan) {
  std::size_t most = 0;
  for (const auto& groups : plan.micro_groups) most = std::max(most, groups.size());
  return {{"most", most}};
}

}  // namespace

ordered_json load_record(const Point& point) { return load_record(point, make_workload(point.request)); }

ordered_json load_record(const Point& point, const Workload& workload) {
  const Loads loads = loads_of(workload.plan, workload.model, workload.cost);
  ordered_json json;
  json["provenance"] = provenance("reference");
  json["kind"] = "computed";
  json["model"] = workload.model.name;
  json["parameters"] = {{"total", workload.model.parameter_count()},
                        {"matrix", workload.model.matrix_parameter_count()}};
  json["mesh"] = {{"dp", workload.mesh.dp}, {"tp", workload.mesh.tp}, {"pp", workload.mesh.pp}};
  json["strategy"] = point.request.strategy;
  json["optimizer"] = point.request.optimizer;
  json["options"] = {{"strategy", workload.plan.options}, {"optimizer", workload.optimizer_options.values()}};
  json["split"] = name_of(point.request.split);
  json["gradient_dtype"] = name_of(point.gradient);
  json["buckets"] = workload.buffer.buckets.size();
  json["micro_groups"] = micro_groups(workload.plan);
  json["balance"] = {{"dp", loads.dp_balance()}, {"gpu", loads.gpu_balance()}, {"gpu_bound", loads.gpu_bound()}};
  json["flops"] = {{"total", loads.total},
                   {"largest_matrix", loads.largest},
                   {"share", loads.total / workload.mesh.ranks()},
                   {"busiest_gpu", loads.busiest_gpu()}};
  double step = 0, refresh = 0;
  for (const Parameter& parameter : workload.model.parameters) {
    step += static_cast<double>(workload.cost.of(parameter).flops);
    refresh += static_cast<double>(workload.cost.refresh_of(parameter).flops);
  }
  json["cost"] = {{"step", step},
                  {"refresh", refresh},
                  {"refresh_period", workload.cost.refresh_period()},
                  {"average", step + refresh / static_cast<double>(workload.cost.refresh_period())}};
  json["bytes_sent"] = bytes_sent(workload, point.gradient);
  json["memory"] = memory(workload, point.gradient);
  json["loads"] = {{"dp", loads.dp}, {"gpu", loads.gpu}};
  json["shard_elements"] = shard_elements(workload.plan, workload.buffer);
  return json;
}

}  // namespace canzona::harness
