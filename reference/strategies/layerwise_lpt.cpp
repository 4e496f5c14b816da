// Whole matrices packed into equal shards of a bucket by cost: NVIDIA's layer-wise optimizer with a buffer layout.
#include <algorithm>

#include "reference/strategies/partition.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona {
namespace {

// Both from Megatron-LM d98e8a64, layer_wise_optimizer.py, _compute_per_buffer_param_layout.
constexpr double kPaddingFloor = 0.9;    // a bucket holds at least this many times dp · its largest matrix
constexpr double kShardTolerance = 0.3;  // a shard may exceed the mean by this much before cost yields to size

/// max·min² of each block, the leading term of Newton–Schulz.
double newton_schulz_weight(const Parameter& parameter) {
  double weight = 0;
  for (const Block& block : parameter.blocks) {
    const Shape shape = parameter.block_shape(block);
    const auto longer = static_cast<double>(shape.longer());
    const auto shorter = static_cast<double>(shape.shorter());
    weight += longer * shorter * shorter;
  }
  return weight;
}

/// LPT inside a bucket over cumulative loads; owners by matrix, in the order of atomic.matrices.
std::vector<int> pack(const AtomicBucket& atomic, const Model& model, const GradientBuffer& buffer,
                      std::vector<double>& loads) {
  const int dp = static_cast<int>(loads.size());
  std::vector<double> sizes(dp, 0);
  std::vector<double> weights;
  double total = 0;
  std::vector<int> order;
  for (std::size_t index = 0; index < atomic.matrices.size(); ++index) {
    weights.push_back(newton_schulz_weight(model.parameters[atomic.matrices[index]]));
    total += static_cast<double>(buffer.slot_of(atomic.matrices[index]).elements.size());
    order.push_back(static_cast<int>(index));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return weights[a] > weights[b]; });
  const double largest_shard = total / dp * (1 + kShardTolerance);

  std::vector<int> owners(order.size());
  for (const int index : order) {
    const auto size = static_cast<double>(buffer.slot_of(atomic.matrices[index]).elements.size());
    int best = -1;
    for (int rank = 0; rank < dp; ++rank) {
      if (sizes[rank] + size <= largest_shard && (best < 0 || loads[rank] < loads[best])) best = rank;
    }
    if (best < 0) best = static_cast<int>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
    owners[index] = best;
    sizes[best] += size;
    loads[best] += weights[index];
  }
  return owners;
}

Plan plan_layerwise_lpt(const Model& model, const Mesh& mesh, const GradientBuffer& buffer, const Cost&,
                        const Options&) {
  Plan plan;
  plan.mesh = mesh;
  plan.gradient_reduction = GradientReduction::padded_reduce_scatter;
  plan.parameter_gather = ParameterGather::padded_overlapped;
  plan.matrix_update = MatrixUpdate::redundant;

  std::vector<double> loads(mesh.dp, 0);
  for (const Bucket& bucket : buffer.buckets) {
    const AtomicBucket atomic = atomic_bucket(model, buffer, bucket);
    const std::vector<int> owners = pack(atomic, model, buffer, loads);
    auto& segments = plan.buckets.emplace_back();
    for (std::size_t index = 0; index < atomic.gaps.size(); ++index) {
      // Elementwise parameters live in a buffer of their own there, cut evenly; here every gap is.
      const AtomicBucket gap{atomic.gaps[index], {}, {}, {atomic.gaps[index]}};
      for (const Segment& piece : segments_between(gap, std::vector<int>(mesh.dp - 1, 0))) segments.push_back(piece);
      if (index == atomic.matrices.size()) break;
      segments.push_back({{atomic.begins[index], atomic.gaps[index + 1].begin}, owners[index]});
    }
  }
  plan.micro_groups = one_by_one(plan, model, buffer);
  return plan;
}

/// At least 0.9 · dp · the largest matrix shard, so that padding every shard to the largest stays cheap.
std::int64_t bucket_size(const Model& model, const Mesh& mesh) {
  std::int64_t largest = 0;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.routing == Routing::matrix) largest = std::max(largest, parameter.shape.numel() / mesh.tp);
  }
  const double floor = kPaddingFloor * static_cast<double>(largest) * mesh.dp;
  return std::max(default_bucket_size(mesh.dp), static_cast<std::int64_t>(floor));
}

const StrategyRegistration registration{Strategy{
    .name = "layerwise-lpt",
    .order = 2,
    .description = "reduce-scatter on bucket shards padded to the largest; matrices packed by LPT on max·min²; gather "
                   "overlaps forward",
    .citation = "Megatron-LM d98e8a64, layer_wise_optimizer.py, _compute_per_buffer_param_layout",
    .options = {},
    .bucket_size = bucket_size,
    .plan = plan_layerwise_lpt,
}};

}  // namespace
}  // namespace canzona
