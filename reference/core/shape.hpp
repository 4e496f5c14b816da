// Shapes and half-open ranges, in elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/core/integer.hpp"

namespace canzona {

/// A matrix of rows × cols elements; a vector is 1 × cols.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  std::int64_t numel() const { return checked_multiply(rows, cols); }
  std::int64_t shorter() const { return std::min(rows, cols); }
  std::int64_t longer() const { return std::max(rows, cols); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

inline Range intersection(const Range& a, const Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace canzona
