#include "optimized/engine/assembly.hpp"

#include "reference/model/shard.hpp"

namespace canzona::optimized {
namespace {

/// By row of the whole matrix, the row of a TP rank's shard that it is; −1 where that rank lacks it.
std::vector<std::int64_t> shard_rows(const Parameter& parameter, int tp, int tp_rank) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(parameter.shape.rows), -1);
  for (std::int64_t row = 0; row < shard_shape(parameter, tp).rows; ++row)
    rows[static_cast<std::size_t>(whole_row(parameter, tp, tp_rank, row))] = row;
  return rows;
}

/// Whether `next` continues `before` downwards, with the same width; `before` then grows.
bool extend(Rectangle& before, const Rectangle& next) {
  const bool follows = before.width == next.width && before.shard + before.rows * before.shard_pitch == next.shard &&
                       before.stack + before.rows * before.stack_pitch == next.stack;
  if (follows) ++before.rows;
  return follows;
}

}  // namespace

std::vector<Rectangle> rectangles_of(const Parameter& parameter, int tp, const std::vector<const Block*>& blocks) {
  const Shape shard = shard_shape(parameter, tp);
  const std::int64_t cols = parameter.shape.cols;
  std::vector<Rectangle> rectangles;
  for (int tp_rank = 0; tp_rank < tp; ++tp_rank) {
    const std::vector<std::int64_t> rows = shard_rows(parameter, tp, tp_rank);
    std::int64_t position = 0;  // row of the stack
    const std::size_t first = rectangles.size();
    for (const Block* block : blocks) {
      for (const Range& range : block->rows) {
        for (std::int64_t row = range.begin; row < range.end; ++row, ++position) {
          const std::int64_t own = rows[static_cast<std::size_t>(row)];
          if (own < 0) continue;
          const Rectangle next{tp_rank * shard.numel() + own * shard.cols,
                               position * cols + first_column(parameter, tp, tp_rank),
                               1,
                               shard.cols,
                               shard.cols,
                               cols};
          if (rectangles.size() == first || !extend(rectangles.back(), next)) rectangles.push_back(next);
        }
      }
    }
  }
  return rectangles;
}

}  // namespace canzona::optimized
