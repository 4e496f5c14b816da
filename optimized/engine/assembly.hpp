// Between the shards of a matrix and the stack of blocks that an optimizer updates: which rectangles are copied where.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/model/model.hpp"

namespace canzona::optimized {

/// A rectangle of elements; offsets and the distance from row to row are in elements.
struct Rectangle {
  std::int64_t shard = 0;  ///< of its first element, where the shards of all TP ranks stand one after another
  std::int64_t stack = 0;  ///< and where the blocks stand one after another
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t shard_pitch = 0;
  std::int64_t stack_pitch = 0;
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

/// The rectangles of `blocks`, as few as there can be. Where every TP rank holds all of the matrix, each has its own.
std::vector<Rectangle> rectangles_of(const Parameter& parameter, int tp, const std::vector<const Block*>& blocks);

}  // namespace canzona::optimized
