// What one tensor-parallel rank holds flattened: slots for its shards, cut into buckets.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/core/shape.hpp"
#include "reference/model/model.hpp"

namespace canzona {

/// Every parameter starts at a multiple of this many elements (Megatron's param_layout.py).
constexpr std::int64_t kAlignment = 64;

/// Where a parameter's shard lies. `elements` excludes the padding after it.
struct Slot {
  int parameter = 0;  ///< index into Model::parameters
  Range elements;
};

/// A run of slots that is reduced and gathered as one. Buckets tile the buffer; each begins and ends at a
/// multiple of 64 elements.
struct Bucket {
  Range elements;
  int first_slot = 0;
  int end_slot = 0;  ///< one past the last
};

/// The layout is the same on every rank. Slots stand in reverse parameter order, the order in which
/// backward finishes them.
struct GradientBuffer {
  std::vector<Slot> slots;
  std::vector<Bucket> buckets;

  std::int64_t numel() const { return buckets.empty() ? 0 : buckets.back().elements.end; }
  /// The slot of a parameter: reverse order makes it an index computation.
  const Slot& slot_of(int parameter) const { return slots[slots.size() - 1 - static_cast<std::size_t>(parameter)]; }
  int bucket_of(int parameter) const;
  /// From a slot's first element to the first of the next slot in its bucket, or to the bucket's end.
  Range padded(const Bucket& bucket, int slot) const;
};

/// Megatron's default: max(40·10⁶, 10⁶·dp) elements (distributed_data_parallel.py).
std::int64_t default_bucket_size(std::int64_t dp);

/// Lays out the shards of `model` on one of `tp` ranks. A bucket closes when it reaches `bucket_size` elements.
GradientBuffer make_gradient_buffer(const Model& model, std::int64_t tp, std::int64_t bucket_size);

}  // namespace canzona
