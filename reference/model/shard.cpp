#include "reference/model/shard.hpp"

namespace canzona {

Shape shard_shape(const Parameter& parameter, std::int64_t tp) {
  switch (parameter.sharding) {
    case Sharding::none: return parameter.shape;
    case Sharding::rows: return {parameter.shape.rows / tp, parameter.shape.cols};
    case Sharding::columns: return {parameter.shape.rows, parameter.shape.cols / tp};
  }
  throw Error("no such sharding");
}

std::int64_t whole_row(const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank, std::int64_t shard_row) {
  if (parameter.sharding != Sharding::rows) return shard_row;
  std::int64_t segment_begin = 0;
  for (const std::int64_t segment : parameter.row_segments) {
    const std::int64_t share = segment / tp;
    if (shard_row < share) return segment_begin + tp_rank * share + shard_row;
    shard_row -= share;
    segment_begin += segment;
  }
  throw Error("row outside the shard of " + parameter.name);
}

std::int64_t first_column(const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank) {
  return parameter.sharding == Sharding::columns ? tp_rank * (parameter.shape.cols / tp) : 0;
}

}  // namespace canzona
