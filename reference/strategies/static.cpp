// The paper's ASC: ZeRO-1's uniform cut, each matrix going whole to the rank that holds its first element.
#include "reference/strategies/partition.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona {
namespace {

/// tp consecutive matrices a group, one a TP rank.
std::vector<MicroGroup> consecutive_groups(const std::vector<int>& matrices, int tp) {
  std::vector<MicroGroup> groups;
  for (std::size_t index = 0; index < matrices.size(); ++index) {
    const int host = static_cast<int>(index % static_cast<std::size_t>(tp));
    if (host == 0) groups.emplace_back();
    groups.back().members.push_back({matrices[index], host});
  }
  return groups;
}

Plan plan_static(const Model& model, const Mesh& mesh, const GradientBuffer& buffer, const Cost&, const Options&) {
  Plan plan;
  plan.mesh = mesh;
  plan.gradient_reduction = GradientReduction::reduce_scatter;
  plan.parameter_gather = ParameterGather::overlapped;
  plan.matrix_update = MatrixUpdate::hosted;
  for (const Bucket& bucket : buffer.buckets) {
    const AtomicBucket atomic = atomic_bucket(model, buffer, bucket);
    plan.buckets.push_back(segments_between(atomic, start_index_boundaries(atomic, mesh.dp)));
  }
  for (const auto& matrices : owned_matrices(plan, model, buffer)) {
    plan.micro_groups.push_back(consecutive_groups(matrices, mesh.tp));
  }
  return plan;
}

const StrategyRegistration registration{Strategy{
    .name = "static",
    .order = 3,
    .description = "uneven reduce-scatter by start-index ownership; tp consecutive matrices hosted one a rank; gather "
                   "overlaps forward",
    .citation = "Canzona (arXiv 2602.06079), the static partition without balancing (ASC)",
    .options = {},
    .plan = plan_static,
}};

}  // namespace
}  // namespace canzona
