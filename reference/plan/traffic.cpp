#include "reference/plan/traffic.hpp"

#include <algorithm>

#include "reference/core/error.hpp"
#include "reference/core/exact_sum.hpp"
#include "reference/model/shard.hpp"

namespace canzona {
namespace {

void add_bucket(Traffic& traffic, const Plan& plan, const GradientBuffer& buffer, int bucket, const WireTypes& types) {
  const std::int64_t others = plan.mesh.dp - 1;
  const std::int64_t elements = buffer.buckets[bucket].elements.size();
  const std::vector<std::int64_t> owned = owned_elements(plan, buffer, bucket);
  const std::int64_t largest = *std::max_element(owned.begin(), owned.end());
  const std::vector<Range> even = even_ranges(buffer.buckets[bucket].elements, plan.mesh.dp);
  for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) {
    const int successor = (dp_rank + 1) % plan.mesh.dp;
    std::int64_t reduced = 0;
    switch (plan.gradient_reduction) {
      case GradientReduction::all_reduce: reduced = 2 * elements - even[dp_rank].size() - even[successor].size(); break;
      case GradientReduction::reduce_scatter: reduced = elements - owned[dp_rank]; break;
      case GradientReduction::padded_reduce_scatter: reduced = others * largest; break;
    }
    std::int64_t gathered = 0;
    switch (plan.parameter_gather) {
      case ParameterGather::none: break;
      case ParameterGather::after_step:
      case ParameterGather::overlapped: gathered = elements - owned[successor]; break;
      case ParameterGather::padded_overlapped: gathered = others * largest; break;
    }
    for (int tp_rank = 0; tp_rank < plan.mesh.tp; ++tp_rank) {
      const int rank = plan.mesh.rank({dp_rank, tp_rank, 0});
      traffic.add(Collective::reduce_gradients, rank, reduced * bytes_of(types.gradient));
      traffic.add(Collective::gather_parameters, rank, gathered * bytes_of(types.parameter));
    }
  }
}

void add_matrix(Traffic& traffic, const Plan& plan, int dp_rank, const HostedMatrix& member, std::int64_t shard,
                const WireTypes& types) {
  const std::int64_t others = plan.mesh.tp - 1;
  for (int tp_rank = 0; tp_rank < plan.mesh.tp; ++tp_rank) {
    const int rank = plan.mesh.rank({dp_rank, tp_rank, 0});
    if (plan.matrix_update == MatrixUpdate::redundant) {
      traffic.add(Collective::gather_shards, rank, others * shard * bytes_of(types.gradient));
    } else if (tp_rank != member.host) {
      traffic.add(Collective::gather_shards, rank, shard * bytes_of(types.gradient));
    } else {
      traffic.add(Collective::scatter_updates, rank, others * shard * bytes_of(types.update));
    }
  }
}

}  // namespace

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::reduce_gradients: return "reduce_gradients";
    case Collective::agree_on_gradients: return "agree_on_gradients";
    case Collective::gather_shards: return "gather_shards";
    case Collective::scatter_updates: return "scatter_updates";
    case Collective::gather_parameters: return "gather_parameters";
    case Collective::reduce_activations: return "reduce_activations";
  }
  throw Error("no such collective");
}

Traffic::Traffic(int ranks) {
  for (auto& sent : sent_) sent.assign(ranks, 0);
}

std::int64_t Traffic::busiest(Collective collective) const {
  return *std::max_element(sent(collective).begin(), sent(collective).end());
}

std::vector<Range> even_ranges(Range elements, int ranks) {
  std::vector<Range> ranges;
  const std::int64_t share = elements.size() / ranks;
  const std::int64_t longer = elements.size() % ranks;  // this many ranks take one element more
  std::int64_t begin = elements.begin;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t end = begin + share + (rank < longer ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

Traffic traffic_of(const Plan& plan, const Model& model, const GradientBuffer& buffer, const WireTypes& types) {
  Traffic traffic(plan.mesh.ranks());
  for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
    traffic.add(Collective::agree_on_gradients, rank, (plan.mesh.dp - 1 + plan.mesh.tp - 1) * ExactSum::bytes());
  }
  for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
    add_bucket(traffic, plan, buffer, static_cast<int>(bucket), types);
  }
  for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) {
    for (const MicroGroup& group : plan.groups_of(dp_rank)) {
      for (const HostedMatrix& member : group.members) {
        const std::int64_t shard = shard_shape(model.parameters[member.parameter], plan.mesh.tp).numel();
        add_matrix(traffic, plan, dp_rank, member, shard, types);
      }
    }
  }
  return traffic;
}

}  // namespace canzona
