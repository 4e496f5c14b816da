#include "reference/plan/load.hpp"

#include <algorithm>
#include <numeric>

namespace canzona {
namespace {

/// Calls visit(rank, member) for every rank that computes the update of a matrix.
template <class Visit>
void for_each_computation(const Plan& plan, const Visit& visit) {
  for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) {
    for (const MicroGroup& group : plan.groups_of(dp_rank)) {
      for (const HostedMatrix& member : group.members) {
        for (int tp_rank = 0; tp_rank < plan.mesh.tp; ++tp_rank) {
          if (plan.matrix_update == MatrixUpdate::redundant || member.host == tp_rank) {
            visit(plan.mesh.rank({dp_rank, tp_rank, 0}), member);
          }
        }
      }
    }
  }
}

std::int64_t elementwise_elements(const Model& model, const GradientBuffer& buffer, const Bucket& bucket, Range range) {
  std::int64_t elements = 0;
  for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
    if (model.parameters[buffer.slots[slot].parameter].routing == Routing::elementwise) {
      elements += intersection(buffer.slots[slot].elements, range).size();
    }
  }
  return elements;
}

}  // namespace

double Loads::busiest_gpu() const { return gpu.empty() ? 0 : *std::max_element(gpu.begin(), gpu.end()); }

double Loads::dp_balance() const {
  const double sum = std::accumulate(dp.begin(), dp.end(), 0.0);
  return sum > 0 ? *std::max_element(dp.begin(), dp.end()) / (sum / static_cast<double>(dp.size())) : 1;
}

double Loads::gpu_balance() const { return total > 0 ? busiest_gpu() / (total / static_cast<double>(gpu.size())) : 1; }

Loads loads_of(const Plan& plan, const Model& model, const Cost& cost) {
  std::vector<double> flops;
  for (const Parameter& parameter : model.parameters) flops.push_back(static_cast<double>(cost.of(parameter).flops));
  Loads loads;
  loads.total = std::accumulate(flops.begin(), flops.end(), 0.0);
  loads.dp.assign(plan.mesh.dp, 0);
  loads.gpu.assign(plan.mesh.ranks(), 0);
  for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) {
    for (const MicroGroup& group : plan.groups_of(dp_rank)) {
      for (const HostedMatrix& member : group.members) loads.dp[dp_rank] += flops[member.parameter];
    }
  }
  for_each_computation(plan, [&](int rank, const HostedMatrix& member) { loads.gpu[rank] += flops[member.parameter]; });
  return loads;
}

std::vector<std::int64_t> shard_elements(const Plan& plan, const GradientBuffer& buffer) {
  std::vector<std::int64_t> elements(plan.mesh.dp, 0);
  for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
    const auto owned = owned_elements(plan, buffer, static_cast<int>(bucket));
    for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) elements[dp_rank] += owned[dp_rank];
  }
  return elements;
}

StateMemory state_memory(const Plan& plan, const Model& model, const GradientBuffer& buffer, const Cost& cost) {
  const std::int64_t fp32 = bytes_of(DType::fp32);
  constexpr std::int64_t kMoments = 2;  // AdamW's m and v
  StateMemory memory;
  memory.master_weights.assign(plan.mesh.ranks(), 0);
  memory.optimizer_state.assign(plan.mesh.ranks(), 0);
  const auto add = [&](int dp_rank, const Bucket& bucket, Range range) {
    const std::int64_t moments = kMoments * fp32 * elementwise_elements(model, buffer, bucket, range);
    for (int tp_rank = 0; tp_rank < plan.mesh.tp; ++tp_rank) {
      const int rank = plan.mesh.rank({dp_rank, tp_rank, 0});
      memory.master_weights[rank] += fp32 * range.size();
      memory.optimizer_state[rank] += moments;
    }
  };
  for (std::size_t index = 0; index < buffer.buckets.size(); ++index) {
    const Bucket& bucket = buffer.buckets[index];
    if (plan.replicated()) {
      for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) add(dp_rank, bucket, bucket.elements);
    } else {
      for (const Segment& segment : plan.buckets[index]) add(segment.owner, bucket, segment.elements);
    }
  }
  std::vector<std::int64_t> state;
  for (const Parameter& parameter : model.parameters) state.push_back(cost.of(parameter).state_bytes);
  for_each_computation(
      plan, [&](int rank, const HostedMatrix& member) { memory.optimizer_state[rank] += state[member.parameter]; });
  return memory;
}

}  // namespace canzona
