#include "reference/strategies/partition.hpp"

#include <algorithm>

namespace canzona {

AtomicBucket atomic_bucket(const Model& model, const GradientBuffer& buffer, const Bucket& bucket) {
  AtomicBucket atomic;
  atomic.elements = bucket.elements;
  std::int64_t gap_begin = bucket.elements.begin;
  for (int index = bucket.first_slot; index < bucket.end_slot; ++index) {
    const Slot& slot = buffer.slots[index];
    if (model.parameters[slot.parameter].routing != Routing::matrix) continue;
    atomic.matrices.push_back(slot.parameter);
    atomic.begins.push_back(slot.elements.begin);
    atomic.gaps.push_back({gap_begin, slot.elements.begin});
    gap_begin = buffer.padded(bucket, index).end;
  }
  atomic.gaps.push_back({gap_begin, bucket.elements.end});
  return atomic;
}

std::vector<Segment> segments_between(const AtomicBucket& bucket, const std::vector<int>& boundaries) {
  std::vector<Segment> segments;
  std::int64_t begin = bucket.elements.begin;
  const auto close = [&](std::int64_t end, int owner) {
    if (end > begin) segments.push_back({{begin, end}, owner});
    begin = end;
  };
  const int cuts = static_cast<int>(boundaries.size());
  for (int first = 0; first < cuts;) {
    int last = first;
    while (last < cuts && boundaries[last] == boundaries[first]) ++last;
    const Range gap = bucket.gaps[boundaries[first]];
    for (int cut = first; cut < last; ++cut) {
      const std::int64_t share = gap.size() / kAlignment * (cut - first + 1) / (last - first + 1) * kAlignment;
      close(gap.begin + share, cut);
    }
    first = last;
  }
  close(bucket.elements.end, cuts);
  return segments;
}

std::vector<int> start_index_boundaries(const AtomicBucket& bucket, int dp) {
  std::vector<int> boundaries;
  for (int rank = 1; rank < dp; ++rank) {
    // A matrix that begins before rank·B/R belongs to an earlier rank. Compared as begin·R < rank·B, exactly.
    const auto begins_before = [&](std::int64_t begin) {
      return checked_multiply(begin - bucket.elements.begin, dp) < checked_multiply(bucket.elements.size(), rank);
    };
    const auto first_after = std::partition_point(bucket.begins.begin(), bucket.begins.end(), begins_before);
    boundaries.push_back(static_cast<int>(first_after - bucket.begins.begin()));
  }
  return boundaries;
}

std::vector<std::vector<int>> owned_matrices(const Plan& plan, const Model& model, const GradientBuffer& buffer) {
  std::vector<std::vector<int>> owned(plan.replicated() ? 1 : plan.mesh.dp);
  const std::vector<int> owners = matrix_owners(plan, model, buffer);
  for (const Slot& slot : buffer.slots) {
    if (model.parameters[slot.parameter].routing != Routing::matrix) continue;
    owned[plan.replicated() ? 0 : owners[slot.parameter]].push_back(slot.parameter);
  }
  return owned;
}

std::vector<std::vector<MicroGroup>> one_by_one(const Plan& plan, const Model& model, const GradientBuffer& buffer) {
  std::vector<std::vector<MicroGroup>> groups;
  for (const auto& matrices : owned_matrices(plan, model, buffer)) {
    auto& list = groups.emplace_back();
    for (const int parameter : matrices) list.push_back({{{parameter, 0}}});
  }
  return groups;
}

}  // namespace canzona
