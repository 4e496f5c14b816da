// One launcher for elementwise work, one for sums, one for maxima and one for exact sums of squares: a functor is
// written once, marked CANZONA_KERNEL, and runs on every backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/device/kernel.hpp"
#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {
inline namespace CANZONA_TARGET {

/// A functor of either form (operands.hpp) for every element in [0, count), in any order and side by side; each copy
/// loads before, where it has a load().
template <class Functor>
void launch(Stream& stream, std::int64_t count, const Functor& functor) {
  if (const GpuQueue* queue = stream.gpu()) return gpu::for_each(*queue, count, functor);
  stream.run_pieces(count, [functor](std::int64_t begin, std::int64_t end) {
    Functor own = loaded(functor);
    visit_range(own, begin, end);
  });
}

/// The same with functor(row, i) for every row and each element i = row·cols + col of it: no division tells an element
/// its row.
template <class Functor>
void launch_rows(Stream& stream, std::int64_t rows, std::int64_t cols, const Functor& functor) {
  if (const GpuQueue* queue = stream.gpu()) return gpu::for_each_row(*queue, rows, cols, functor);
  stream.run_pieces(rows * cols, [cols, functor](std::int64_t begin, std::int64_t end) {
    Functor own = loaded(functor);
    while (begin < end) {
      const std::int64_t row = begin / cols;
      const std::int64_t row_end = std::min(end, (row + 1) * cols);
#pragma omp simd
      for (std::int64_t i = begin; i < row_end; ++i) own(row, i);
      begin = row_end;
    }
  });
}

/// Σ over a row's elements [begin, begin + count), in an order that only count decides. Four quarters go side by side:
/// one core fetches from four places of memory nearly twice as fast as from one.
template <class Functor>
double sum_in_quarters(std::int64_t row, std::int64_t begin, std::int64_t count, const Functor& functor) {
  constexpr std::int64_t kQuarters = 4;
  constexpr std::int64_t kLanes = 2;  // of the narrowest vector
  const std::int64_t quarter = count / (kQuarters * kLanes) * kLanes;
  double sums[kQuarters * kLanes] = {};
  for (std::int64_t at = begin; at < begin + quarter; at += kLanes) {
#pragma GCC unroll 8
    for (std::int64_t lane = 0; lane < kQuarters * kLanes; ++lane)
      sums[lane] += element_of(functor, row, at + lane / kLanes * quarter + lane % kLanes);
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  for (std::int64_t i = begin + kQuarters * quarter; i < begin + count; ++i) sum += element_of(functor, row, i);
  return sum;
}

/// reduce(row) for every row, side by side on the host: a piece has the rows that begin in it.
template <class Reduce>
void run_rows(Stream& stream, std::int64_t rows, std::int64_t cols, const Reduce& reduce) {
  const std::int64_t pitch = std::max<std::int64_t>(cols, 1);
  stream.run_pieces(rows * pitch, [pitch, reduce](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = (begin + pitch - 1) / pitch; row * pitch < end; ++row) reduce(row);
  });
}

/// sums[row] = Σ over col of functor(i) or functor(row, i), a double, with i = row·cols + col, for every row: in fp64,
/// in a fixed order. It is called once for each element, and may write what belongs to that.
template <class Functor>
void launch_sums(Stream& stream, std::int64_t rows, std::int64_t cols, DevicePointer<double> sums,
                 const Functor& functor) {
  if (const GpuQueue* queue = stream.gpu()) return gpu::reduce_rows<Sum>(*queue, rows, cols, sums.raw(), functor);
  run_rows(stream, rows, cols, [cols, sums, functor](std::int64_t row) {
    sums.raw()[row] = sum_in_quarters(row, row * cols, cols, functor);
  });
}

/// largest[row] = max over col of the same; NaN where one of them is.
template <class Functor>
void launch_maxima(Stream& stream, std::int64_t rows, std::int64_t cols, DevicePointer<double> largest,
                   const Functor& functor) {
  if (const GpuQueue* queue = stream.gpu())
    return gpu::reduce_rows<Maximum>(*queue, rows, cols, largest.raw(), functor);
  run_rows(stream, rows, cols, [cols, largest, functor](std::int64_t row) {
    double most = Maximum::kNothing;
    for (std::int64_t i = row * cols; i < (row + 1) * cols; ++i) most = Maximum::of(most, element_of(functor, row, i));
    largest.raw()[row] = most;
  });
}

/// *largest = max of functor(i), a double, over i in [0, count); NaN where one of them is.
template <class Functor>
void launch_maximum(Stream& stream, std::int64_t count, DevicePointer<double> largest, const Functor& functor) {
  launch_maxima(stream, 1, count, largest, functor);
}

struct Carry {
  std::int64_t* integers;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) { ExactSum::carry(integers); }
};

/// Adds the squares of `count` floats to ExactSum::kIntegers integers; carries them, so that sums of many have room.
inline void launch_exact_squares(Stream& stream, DevicePointer<const float> values, std::int64_t count,
                                 DevicePointer<std::int64_t> integers) {
  if (const GpuQueue* queue = stream.gpu()) {
    gpu::add_squares(*queue, values.raw(), count, integers.raw());
  } else {
    stream.run([values, count, integers] { ExactSum::add_squares(values.raw(), count, integers.raw()); });
  }
  launch(stream, 1, Carry{integers.raw()});
}

}  // namespace CANZONA_TARGET
}  // namespace canzona::optimized
