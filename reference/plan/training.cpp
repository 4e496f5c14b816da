#include "reference/plan/training.hpp"

#include <algorithm>
#include <cmath>

#include "reference/plan/traffic.hpp"

namespace canzona {

Agreement agree(const ExactSum& squares, double clip_norm) {
  constexpr double kEpsilon = 1e-6;
  Agreement agreement;
  agreement.norm = std::sqrt(squares.value());
  agreement.skip = squares.not_finite() > 0 || !std::isfinite(agreement.norm);
  if (clip_norm > 0 && !agreement.skip) agreement.factor = std::min(1.0, clip_norm / (agreement.norm + kEpsilon));
  return agreement;
}

std::vector<Range> counted_elements(const Plan& plan, const Model& model, const GradientBuffer& buffer,
                                    const Coordinate& at) {
  std::vector<Range> counted;
  for (std::size_t index = 0; index < buffer.buckets.size(); ++index) {
    const Bucket& bucket = buffer.buckets[index];
    const std::vector<Range> own = plan.replicated()
                                       ? std::vector<Range>{even_ranges(bucket.elements, plan.mesh.dp)[at.dp]}
                                       : owned_ranges(plan, buffer, static_cast<int>(index), at.dp);
    for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      if (model.parameters[buffer.slots[slot].parameter].sharding == Sharding::none && at.tp != 0) continue;
      for (const Range& range : own) {
        const Range mine = intersection(range, buffer.slots[slot].elements);
        if (!mine.empty()) counted.push_back(mine);
      }
    }
  }
  return counted;
}

}  // namespace canzona
