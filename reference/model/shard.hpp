// Which rows and columns of a parameter a tensor-parallel rank holds; moving between shard, block and whole.
#pragma once

#include "reference/core/matrix.hpp"
#include "reference/model/model.hpp"

namespace canzona {

/// The shape of one TP rank's shard; all ranks' shards have the same shape.
Shape shard_shape(const Parameter& parameter, std::int64_t tp);

/// The row of the whole parameter that is row `shard_row` of rank `tp_rank`'s shard.
std::int64_t whole_row(const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank, std::int64_t shard_row);

/// The column of the whole parameter that is column 0 of rank `tp_rank`'s shard.
std::int64_t first_column(const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank);

/// Calls visit(index in the whole parameter, position) for each element of rank `tp_rank`'s shard, which lies row-major
/// from position `begin`.
template <class Visit>
void for_each_element(const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank, std::int64_t begin,
                      const Visit& visit) {
  const Shape shard = shard_shape(parameter, tp);
  const std::int64_t column = first_column(parameter, tp, tp_rank);
  std::int64_t position = begin;
  for (std::int64_t row = 0; row < shard.rows; ++row) {
    const std::int64_t whole = whole_row(parameter, tp, tp_rank, row) * parameter.shape.cols + column;
    for (std::int64_t col = 0; col < shard.cols; ++col) visit(whole + col, position++);
  }
}

/// Copies rank `tp_rank`'s shard into its place in `whole`; both row-major.
template <class Scalar>
void place_shard(const Scalar* shard, const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank,
                 Scalar* whole) {
  const Shape shape = shard_shape(parameter, tp);
  whole += first_column(parameter, tp, tp_rank);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::copy_n(shard + row * shape.cols, shape.cols,
                whole + whole_row(parameter, tp, tp_rank, row) * parameter.shape.cols);
  }
}
template <class Scalar>
void place_shard(const Scalar* shard, const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank,
                 Matrix<Scalar>& whole) {
  place_shard(shard, parameter, tp, tp_rank, whole.data());
}

/// Copies rank `tp_rank`'s part of `whole` to `shard`; both row-major.
template <class Scalar>
void take_shard(const Scalar* whole, const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank, Scalar* shard) {
  const Shape shape = shard_shape(parameter, tp);
  whole += first_column(parameter, tp, tp_rank);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::copy_n(whole + whole_row(parameter, tp, tp_rank, row) * parameter.shape.cols, shape.cols,
                shard + row * shape.cols);
  }
}
template <class Scalar>
void take_shard(const Matrix<Scalar>& whole, const Parameter& parameter, std::int64_t tp, std::int64_t tp_rank,
                Scalar* shard) {
  take_shard(whole.data(), parameter, tp, tp_rank, shard);
}

/// The rows of `whole` that make up `block`, in the block's order.
template <class Scalar>
Matrix<Scalar> take_block(const Matrix<Scalar>& whole, const Block& block) {
  Matrix<Scalar> rows(block.row_count(), whole.cols());
  std::int64_t next = 0;
  for (const Range& range : block.rows) {
    rows.middleRows(next, range.size()) = whole.middleRows(range.begin, range.size());
    next += range.size();
  }
  return rows;
}

/// Puts the rows of `block` back into `whole`.
template <class Scalar>
void place_block(const Matrix<Scalar>& rows, const Block& block, Matrix<Scalar>& whole) {
  std::int64_t next = 0;
  for (const Range& range : block.rows) {
    whole.middleRows(range.begin, range.size()) = rows.middleRows(next, range.size());
    next += range.size();
  }
}

}  // namespace canzona
