#include "reference/plan/plan.hpp"

#include <fmt/format.h>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

void require_owner(const Plan& plan, int bucket, int owner) {
  if (owner < 0 || owner >= plan.mesh.dp) {
    throw PlanError(
        fmt::format("bucket {}: owner {} is not one of {} data-parallel ranks", bucket, owner, plan.mesh.dp));
  }
}

void validate_bucket(const Plan& plan, const Bucket& bucket, int index) {
  std::int64_t position = bucket.elements.begin;
  for (const Segment& segment : plan.buckets[index]) {
    if (segment.elements.begin != position || segment.elements.empty()) {
      throw PlanError(fmt::format("bucket {}: a segment begins at {} where {} was expected", index,
                                  segment.elements.begin, position));
    }
    require_owner(plan, index, segment.owner);
    position = segment.elements.end;
  }
  if (position != bucket.elements.end) {
    throw PlanError(
        fmt::format("bucket {}: segments end at {}, the bucket at {}", index, position, bucket.elements.end));
  }
}

void validate_groups(const Plan& plan, const Model& model, const std::vector<int>& owners, int dp_rank,
                     std::vector<int>& seen) {
  for (const MicroGroup& group : plan.groups_of(dp_rank)) {
    for (const HostedMatrix& member : group.members) {
      if (member.parameter < 0 || member.parameter >= static_cast<int>(model.parameters.size())) {
        throw PlanError(fmt::format("a micro-group of rank {} holds parameter {}, which does not exist", dp_rank,
                                    member.parameter));
      }
      const Parameter& parameter = model.parameters[member.parameter];
      if (parameter.routing != Routing::matrix) throw PlanError(parameter.name + " is in a micro-group but no matrix");
      if (member.host < 0 || member.host >= plan.mesh.tp) {
        throw PlanError(fmt::format("{}: host {} is not one of {} tensor-parallel ranks", parameter.name, member.host,
                                    plan.mesh.tp));
      }
      if (!plan.replicated() && owners[member.parameter] != dp_rank) {
        throw PlanError(fmt::format("{} is updated by rank {} but owned by rank {}", parameter.name, dp_rank,
                                    owners[member.parameter]));
      }
      ++seen[member.parameter];
    }
  }
}

}  // namespace

std::vector<Range> owned_ranges(const Plan& plan, const GradientBuffer& buffer, int bucket, int dp_rank) {
  if (plan.replicated()) return {buffer.buckets[bucket].elements};
  std::vector<Range> ranges;
  for (const Segment& segment : plan.buckets[bucket]) {
    if (segment.owner == dp_rank) ranges.push_back(segment.elements);
  }
  return ranges;
}

std::vector<std::int64_t> owned_elements(const Plan& plan, const GradientBuffer& buffer, int bucket) {
  if (plan.replicated()) return std::vector<std::int64_t>(plan.mesh.dp, buffer.buckets[bucket].elements.size());
  std::vector<std::int64_t> elements(plan.mesh.dp, 0);
  for (const Segment& segment : plan.buckets[bucket]) elements[segment.owner] += segment.elements.size();
  return elements;
}

std::vector<int> matrix_owners(const Plan& plan, const Model& model, const GradientBuffer& buffer) {
  std::vector<int> owners(model.parameters.size(), -1);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const auto& segments = plan.buckets[bucket];
    std::size_t segment = 0;
    for (int index = buffer.buckets[bucket].first_slot; index < buffer.buckets[bucket].end_slot; ++index) {
      const Slot& slot = buffer.slots[index];
      const Parameter& parameter = model.parameters[slot.parameter];
      while (segment < segments.size() && segments[segment].elements.end <= slot.elements.begin) ++segment;
      if (parameter.routing != Routing::matrix || segment == segments.size()) continue;
      owners[slot.parameter] = segments[segment].owner;
      require_owner(plan, static_cast<int>(bucket), owners[slot.parameter]);
      for (std::size_t rest = segment; rest < segments.size() && segments[rest].elements.begin < slot.elements.end;
           ++rest) {
        if (segments[rest].owner != owners[slot.parameter]) {
          throw PlanError(parameter.name + " is a matrix and is cut between data-parallel ranks");
        }
      }
    }
  }
  return owners;
}

void validate(const Plan& plan, const Model& model, const GradientBuffer& buffer) {
  if (plan.mesh.pp != 1) throw PlanError(fmt::format("pp is {}: a plan covers one pipeline stage", plan.mesh.pp));
  if (!plan.replicated() && plan.buckets.size() != buffer.buckets.size()) {
    throw PlanError(fmt::format("the plan has {} buckets, the buffer {}", plan.buckets.size(), buffer.buckets.size()));
  }
  const bool gathers = plan.parameter_gather != ParameterGather::none;
  if (gathers == plan.replicated()) throw PlanError("parameters must be gathered exactly when they are not replicated");
  if (plan.replicated() && plan.gradient_reduction != GradientReduction::all_reduce) {
    throw PlanError("replicated parameters need an all-reduce of their gradients");
  }
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    validate_bucket(plan, buffer.buckets[bucket], static_cast<int>(bucket));
  }

  const int lists = plan.replicated() ? 1 : plan.mesh.dp;
  if (static_cast<int>(plan.micro_groups.size()) != lists) {
    throw PlanError(
        fmt::format("micro-groups of {} ranks were expected, {} are there", lists, plan.micro_groups.size()));
  }
  const std::vector<int> owners = matrix_owners(plan, model, buffer);
  std::vector<int> seen(model.parameters.size(), 0);
  for (int dp_rank = 0; dp_rank < lists; ++dp_rank) validate_groups(plan, model, owners, dp_rank, seen);
  for (std::size_t index = 0; index < model.parameters.size(); ++index) {
    const bool is_matrix = model.parameters[index].routing == Routing::matrix;
    if (seen[index] != (is_matrix ? 1 : 0)) {
      throw PlanError(fmt::format("{} is in {} micro-groups", model.parameters[index].name, seen[index]));
    }
  }
}

}  // namespace canzona
