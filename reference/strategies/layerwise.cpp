// Whole parameters dealt to data-parallel ranks like cards: NVIDIA's layer-wise optimizer without a buffer layout.
#include <algorithm>

#include "reference/strategies/partition.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona {
namespace {

Plan plan_layerwise(const Model& model, const Mesh& mesh, const GradientBuffer& buffer, const Cost&, const Options&) {
  Plan plan;
  plan.mesh = mesh;
  plan.gradient_reduction = GradientReduction::all_reduce;
  plan.parameter_gather = ParameterGather::after_step;
  plan.matrix_update = MatrixUpdate::redundant;

  std::vector<int> deal(model.parameters.size());
  for (std::size_t index = 0; index < deal.size(); ++index) deal[index] = static_cast<int>(index);
  std::stable_sort(deal.begin(), deal.end(),
                   [&](int a, int b) { return buffer.slot_of(a).elements.size() < buffer.slot_of(b).elements.size(); });
  // Ping-pong: 0, 1, …, R−1, R−1, …, 1, 0, 0, 1, …
  std::vector<int> owner(model.parameters.size());
  for (std::size_t turn = 0; turn < deal.size(); ++turn) {
    const int place = static_cast<int>(turn % (2 * static_cast<std::size_t>(mesh.dp)));
    owner[deal[turn]] = place < mesh.dp ? place : 2 * mesh.dp - 1 - place;
  }
  for (const Bucket& bucket : buffer.buckets) {
    auto& segments = plan.buckets.emplace_back();
    for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      segments.push_back({buffer.padded(bucket, slot), owner[buffer.slots[slot].parameter]});
    }
  }
  plan.micro_groups = one_by_one(plan, model, buffer);
  return plan;
}

const StrategyRegistration registration{Strategy{
    .name = "layerwise",
    .order = 1,
    .description =
        "all-reduce gradients; whole parameters dealt by size in ping-pong order; parameters gathered after the step",
    .citation = "Megatron-LM d98e8a64, layer_wise_optimizer.py, _shard_params_ping_pong",
    .options = {},
    .plan = plan_layerwise,
}};

}  // namespace
}  // namespace canzona
