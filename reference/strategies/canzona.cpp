// The paper's strategy: α-balanced static partitioning over data parallelism, cost-balanced micro-groups with greedy
// rollback over tensor parallelism.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/strategies/partition.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona {
namespace {

using Boundaries = std::vector<std::vector<int>>;  // by bucket, then by cut

/// prefix[i] = weight of the first i matrices of a bucket.
std::vector<double> prefix_weights(const AtomicBucket& bucket, const std::vector<double>& weights) {
  std::vector<double> prefix{0};
  for (const int parameter : bucket.matrices) prefix.push_back(prefix.back() + weights[parameter]);
  return prefix;
}

/// What rank r carries of a bucket that is cut at `boundaries`.
void add_loads(const std::vector<double>& prefix, const std::vector<int>& boundaries, std::vector<double>& loads) {
  int begin = 0;
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    const int end = rank < boundaries.size() ? boundaries[rank] : static_cast<int>(prefix.size()) - 1;
    loads[rank] += prefix[end] - prefix[begin];
    begin = end;
  }
}

/// The boundary nearest to `target`, the lower of two, but none before `earliest`.
int snap(const std::vector<double>& prefix, double target, int earliest) {
  const auto above = std::lower_bound(prefix.begin(), prefix.end(), target);
  int nearest = static_cast<int>(above - prefix.begin());
  if (above == prefix.end()) {
    nearest = static_cast<int>(prefix.size()) - 1;
  } else if (nearest > 0 && target - prefix[nearest - 1] <= prefix[nearest] - target) {
    --nearest;
  }
  return std::max(nearest, earliest);
}

/// One bucket: target_r = (1−α)·B/R + α·B·deficit_r/Σdeficit, cumulative targets snapped to matrices.
std::vector<int> balanced_cut(const std::vector<double>& prefix, double alpha, double mean_load,
                              const std::vector<double>& loads) {
  const auto ranks = static_cast<double>(loads.size());
  const double bucket_weight = prefix.back();
  std::vector<double> deficits;
  for (const double load : loads) deficits.push_back(std::max(0.0, mean_load - load));
  const double deficit = std::accumulate(deficits.begin(), deficits.end(), 0.0);

  std::vector<int> boundaries;
  double cumulative = 0;
  int earliest = 0;
  for (std::size_t rank = 0; rank + 1 < loads.size(); ++rank) {
    const double even = bucket_weight / ranks;
    const double fill = deficit > 0 ? bucket_weight * deficits[rank] / deficit : even;
    cumulative += (1 - alpha) * even + alpha * fill;
    earliest = snap(prefix, cumulative, earliest);
    boundaries.push_back(earliest);
  }
  return boundaries;
}

/// α-balanced static partitioning; the start-index partition where balancing does not lower the busiest rank.
Boundaries partition(const std::vector<AtomicBucket>& buckets, const std::vector<double>& weights, double alpha,
                     int dp) {
  std::vector<std::vector<double>> prefixes;
  double total = 0;
  for (const AtomicBucket& bucket : buckets) {
    prefixes.push_back(prefix_weights(bucket, weights));
    total += prefixes.back().back();
  }
  std::vector<std::size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prefixes[a].back() > prefixes[b].back(); });

  Boundaries balanced(buckets.size());
  std::vector<double> balanced_loads(dp, 0);
  for (const std::size_t bucket : order) {
    balanced[bucket] = balanced_cut(prefixes[bucket], alpha, total / dp, balanced_loads);
    add_loads(prefixes[bucket], balanced[bucket], balanced_loads);
  }

  Boundaries uniform;
  std::vector<double> uniform_loads(dp, 0);
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    uniform.push_back(start_index_boundaries(buckets[bucket], dp));
    add_loads(prefixes[bucket], uniform[bucket], uniform_loads);
  }
  const auto busiest = [](const std::vector<double>& loads) { return *std::max_element(loads.begin(), loads.end()); };
  return busiest(balanced_loads) < busiest(uniform_loads) ? balanced : uniform;
}

/// A budget for one micro-group on one rank, and what counts against it.
struct Capacity {
  double limit;
  Weight unit;
};

/// "N", "N:elements" or "N:flops".
Capacity parse_capacity(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string unit = colon == std::string::npos ? "elements" : text.substr(colon + 1);
  if (unit != "elements" && unit != "flops")
    throw InputError("", "capacity", "'" + text + "'", "N, N:elements, N:flops");
  const std::int64_t limit = parse_integer("capacity", text.substr(0, colon), 1, std::int64_t{1} << 60);
  return {static_cast<double>(limit), unit == "flops" ? Weight::flops : Weight::numel};
}

/// Micro-group scheduling with greedy rollback: matrices by decreasing weight, each to the TP rank with the least
/// cumulative load (which is LPT of the group so far); a matrix that takes a rank's share of the group past the
/// capacity is taken back and opens the next group. The published rule also tests the mean, which never exceeds the
/// largest.
std::vector<MicroGroup> greedy_rollback(std::vector<int> matrices, int tp, const std::vector<double>& weights,
                                        const std::vector<double>& sizes, double capacity) {
  std::stable_sort(matrices.begin(), matrices.end(), [&](int a, int b) { return weights[a] > weights[b]; });
  std::vector<MicroGroup> groups;
  std::vector<double> loads(tp, 0);
  std::vector<double> group_sizes(tp, 0);
  double largest = 0;  // of group_sizes
  for (const int matrix : matrices) {
    const auto host = static_cast<int>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    if (groups.empty() || std::max(largest, group_sizes[host] + sizes[matrix]) > capacity) {
      groups.emplace_back();
      group_sizes.assign(tp, 0);
      largest = 0;
    }
    groups.back().members.push_back({matrix, host});
    group_sizes[host] += sizes[matrix];
    largest = std::max(largest, group_sizes[host]);
    loads[host] += weights[matrix];
  }
  return groups;
}

Plan plan_canzona(const Model& model, const Mesh& mesh, const GradientBuffer& buffer, const Cost& cost,
                  const Options& options) {
  const Weight weight = parse_weight(options.text("cost"));
  const Capacity capacity = parse_capacity(options.text("capacity"));
  std::vector<double> weights = cost.weights(model, weight);
  // Where nothing costs any FLOPs, elements are what there is to balance.
  if (std::none_of(weights.begin(), weights.end(), [](double own) { return own > 0; }))
    weights = cost.weights(model, Weight::numel);
  const std::vector<double> sizes = cost.weights(model, capacity.unit);

  Plan plan;
  plan.mesh = mesh;
  plan.gradient_reduction = GradientReduction::reduce_scatter;
  plan.parameter_gather = ParameterGather::overlapped;
  plan.matrix_update = MatrixUpdate::hosted;
  plan.pipelined = true;
  std::vector<AtomicBucket> buckets;
  for (const Bucket& bucket : buffer.buckets) buckets.push_back(atomic_bucket(model, buffer, bucket));
  const Boundaries boundaries = partition(buckets, weights, options.number("alpha"), mesh.dp);
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    plan.buckets.push_back(segments_between(buckets[bucket], boundaries[bucket]));
  }
  for (const auto& matrices : owned_matrices(plan, model, buffer)) {
    plan.micro_groups.push_back(greedy_rollback(matrices, mesh.tp, weights, sizes, capacity.limit));
  }
  return plan;
}

const StrategyRegistration registration{Strategy{
    .name = "canzona",
    .order = 4,
    .description = "uneven reduce-scatter, α-balanced over data parallelism; cost-balanced micro-groups over tensor "
                   "parallelism, pipelined",
    .citation = "Canzona (arXiv 2602.06079), α-balanced static partitioning and micro-group scheduling",
    .options =
        {
            {"alpha", NumberOption{0, 1}, "1", "", "1 balances load alone, 0 communication alone"},
            {"cost", WordOption{{"numel", "flops", "measured"}}, "flops", "",
             "the weight W of a matrix that is balanced"},
            // liangyuwang/Megatron-Canzona: 400·2²⁰ elements.
            {"capacity", TextOption{"N, N:elements, N:flops", [](const std::string& text) { parse_capacity(text); }},
             "419430400:elements", "elements or FLOPs of whole matrices", "budget of one rank in one micro-group"},
        },
    .plan = plan_canzona,
}};

}  // namespace
}  // namespace canzona
