// One launcher for elementwise work and one for sums: a functor is written once and runs on every backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// functor(i) for every i in [0, count), in any order and side by side.
template <class Functor>
void launch(Stream& stream, std::int64_t count, const Functor& functor) {
  stream.run_pieces(count, [functor](std::int64_t begin, std::int64_t end) {
    Functor own = functor;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) own(i);
  });
}

/// functor(row, i) for every row and each element i = row·cols + col of it: no division tells an element its row.
template <class Functor>
void launch_rows(Stream& stream, std::int64_t rows, std::int64_t cols, const Functor& functor) {
  stream.run_pieces(rows * cols, [cols, functor](std::int64_t begin, std::int64_t end) {
    Functor own = functor;
    while (begin < end) {
      const std::int64_t row = begin / cols;
      const std::int64_t row_end = std::min(end, (row + 1) * cols);
#pragma omp simd
      for (std::int64_t i = begin; i < row_end; ++i) own(row, i);
      begin = row_end;
    }
  });
}

/// sums[row] = Σ over col of functor(row·cols + col), a double, for every row: in fp64, in a fixed order.
template <class Functor>
void launch_sums(Stream& stream, std::int64_t rows, std::int64_t cols, DevicePointer<double> sums,
                 const Functor& functor) {
  stream.run([rows, cols, sums, functor] {
    constexpr std::int64_t kLanes = 8;  // partial sums, so that the loop is not one long chain
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = row * cols;
      double lanes[kLanes] = {};
      std::int64_t col = 0;
      for (; col + kLanes <= cols; col += kLanes) {
#pragma omp simd
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += functor(begin + col + lane);
      }
      double sum = 0;
      for (const double lane : lanes) sum += lane;
      for (; col < cols; ++col) sum += functor(begin + col);
      sums.raw()[row] = sum;
    }
  });
}

}  // namespace canzona::optimized
