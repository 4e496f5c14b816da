#include "reference/plan/load.hpp"

#include <algorithm>
#include <numeric>

namespace canzona {
namespace {

bool computes(const Plan& plan, const HostedMatrix& member, int tp_rank) {
  return plan.matrix_update == MatrixUpdate::redundant || member.host == tp_rank;
}

/// Calls visit(rank, member) for every rank that computes the update of a matrix.
template <class Visit>
void for_each_computation(const Plan& plan, const Visit& visit) {
  for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank) {
    for (const MicroGroup& group : plan.groups_of(dp_rank)) {
      for (const HostedMatrix& member : group.members) {
        for (int tp_rank = 0; tp_rank < plan.mesh.tp; ++tp_rank) {
          if (computes(plan, member, tp_rank)) visit(plan.mesh.rank({dp_rank, tp_rank, 0}), member);
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

/// The most elements of whole matrices that a rank holds gathered at once.
std::int64_t gathered_elements(const Plan& plan, const Model& model, int dp_rank, int tp_rank) {
  std::int64_t most = 0;
  std::int64_t previous = 0;
  for (const MicroGroup& group : plan.groups_of(dp_rank)) {
    std::int64_t elements = 0;
    for (const HostedMatrix& member : group.members) {
      if (computes(plan, member, tp_rank)) elements += model.parameters[member.parameter].shape.numel();
    }
    most = std::max(most, elements + (plan.pipelined ? previous : 0));
    previous = elements;
  }
  return most;
}

}  // namespace

double Loads::busiest_gpu() const { return gpu.empty() ? 0 : *std::max_element(gpu.begin(), gpu.end()); }

double Loads::dp_balance() const {
  const double sum = std::accumulate(dp.begin(), dp.end(), 0.0);
  return sum > 0 ? *std::max_element(dp.begin(), dp.end()) / (sum / static_cast<double>(dp.size())) : 1;
}

double Loads::gpu_bound() const {
  return total > 0 ? std::max(1.0, largest / (total / static_cast<double>(gpu.size()))) : 1;
}

double Loads::gpu_balance() const { return total > 0 ? busiest_gpu() / (total / static_cast<double>(gpu.size())) : 1; }

Loads loads_of(const Plan& plan, const Model& model, const Cost& cost) {
  std::vector<double> flops;
  Loads loads;
  for (const Parameter& parameter : model.parameters) {
    flops.push_back(cost.average_flops(parameter));
    loads.total += cost.average_flops_unsplit(parameter);
  }
  loads.largest = flops.empty() ? 0 : *std::max_element(flops.begin(), flops.end());
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

StateMemory state_memory(const Plan& plan, const Model& model, const GradientBuffer& buffer, const Cost& cost,
                         DType gradient) {
  const std::int64_t fp32 = bytes_of(DType::fp32);
  StateMemory memory;
  memory.master_weights.assign(plan.mesh.ranks(), 0);
  memory.optimizer_state.assign(plan.mesh.ranks(), 0);
  const auto add = [&](int dp_rank, const Bucket& bucket, Range range) {
    const std::int64_t moments = cost.of_elements(elementwise_elements(model, buffer, bucket, range)).state_bytes;
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
  for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
    const Coordinate at = plan.mesh.coordinate(rank);
    memory.gathered_matrices.push_back(gathered_elements(plan, model, at.dp, at.tp) * bytes_of(gradient));
  }
  return memory;
}

}  // namespace canzona
