// Matrix products on the host: column-major, any transposition, accumulated in the type of the scalars.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona::emulated_gpu {

/// op(A) is m by k, op(B) is k by n, C is m by n.
struct ProductShape {
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

template <class Element>
struct ColumnMajor {
  Element* data;
  std::int64_t leading;
};

/// op(A) in the accumulator's type, rows adjacent in a column.
template <class Accumulator, class Element>
std::vector<Accumulator> packed(ColumnMajor<const Element> a, bool transpose, std::int64_t rows, std::int64_t columns) {
  std::vector<Accumulator> result(static_cast<std::size_t>(rows * columns));
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t index = transpose ? row * a.leading + column : column * a.leading + row;
      result[static_cast<std::size_t>(column * rows + row)] = static_cast<Accumulator>(a.data[index]);
    }
  }
  return result;
}

/// sum += A b, of packed operands: local memory, which the thread sanitizer need not see.
template <class Accumulator>
[[gnu::no_sanitize("thread")]] void add_product(const Accumulator* a, const Accumulator* b, std::int64_t rows,
                                                std::int64_t inner, Accumulator* sum) {
  for (std::int64_t p = 0; p < inner; ++p) {
    const Accumulator scale = b[p];
    const Accumulator* column = a + p * rows;
    for (std::int64_t row = 0; row < rows; ++row) sum[row] += column[row] * scale;
  }
}

/// C = alpha op(A) op(B) + beta C in the rows first(column) to last(column) of each column; C is not read if beta is 0.
template <class Accumulator, class Input, class Output, class First, class Last>
void multiply(const ProductShape& shape, Accumulator alpha, ColumnMajor<const Input> a, ColumnMajor<const Input> b,
              Accumulator beta, ColumnMajor<Output> c, First first, Last last) {
  const std::int64_t inner = alpha == Accumulator{0} ? 0 : shape.k;
  const std::vector<Accumulator> left = packed<Accumulator>(a, shape.transpose_a, shape.m, inner);
  const std::vector<Accumulator> right = packed<Accumulator>(b, shape.transpose_b, inner, shape.n);
  std::vector<Accumulator> sum(static_cast<std::size_t>(shape.m));
  for (std::int64_t column = 0; column < shape.n; ++column) {
    sum.assign(sum.size(), Accumulator{0});
    add_product(left.data(), right.data() + column * inner, shape.m, inner, sum.data());
    Output* result = c.data + column * c.leading;
    for (std::int64_t row = first(column); row < last(column); ++row) {
      const Accumulator scaled = alpha * sum[static_cast<std::size_t>(row)];
      result[row] =
          static_cast<Output>(beta == Accumulator{0} ? scaled : scaled + beta * static_cast<Accumulator>(result[row]));
    }
  }
}

}  // namespace canzona::emulated_gpu
