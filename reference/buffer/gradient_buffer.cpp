#include "reference/buffer/gradient_buffer.hpp"

#include <algorithm>

#include "reference/model/shard.hpp"

namespace canzona {

int GradientBuffer::bucket_of(int parameter) const {
  const std::int64_t begin = slot_of(parameter).elements.begin;
  const auto after =
      std::upper_bound(buckets.begin(), buckets.end(), begin,
                       [](std::int64_t position, const Bucket& bucket) { return position < bucket.elements.begin; });
  return static_cast<int>(after - buckets.begin()) - 1;
}

Range GradientBuffer::padded(const Bucket& bucket, int slot) const {
  const bool last = slot + 1 == bucket.end_slot;
  return {slots[slot].elements.begin, last ? bucket.elements.end : slots[slot + 1].elements.begin};
}

std::int64_t default_bucket_size(std::int64_t dp) { return std::max<std::int64_t>(40'000'000, 1'000'000 * dp); }

GradientBuffer make_gradient_buffer(const Model& model, std::int64_t tp, std::int64_t bucket_size) {
  GradientBuffer buffer;
  Bucket open;
  std::int64_t end = 0;
  const auto close = [&] {
    open.elements.end = end;
    open.end_slot = static_cast<int>(buffer.slots.size());
    buffer.buckets.push_back(open);
    open = {{end, end}, open.end_slot, open.end_slot};
  };
  for (int parameter = static_cast<int>(model.parameters.size()) - 1; parameter >= 0; --parameter) {
    const std::int64_t numel = shard_shape(model.parameters[parameter], tp).numel();
    buffer.slots.push_back({parameter, {end, checked_add(end, numel)}});
    end = align_up(checked_add(end, numel), kAlignment);
    if (end - open.elements.begin >= bucket_size) close();
  }
  if (end > open.elements.begin) close();
  return buffer;
}

}  // namespace canzona
