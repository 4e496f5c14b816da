// Exact 64-bit integers: sizes, offsets and FLOP counts never wrap around silently.
#pragma once

#include <cstdint>

#include "reference/core/error.hpp"

namespace canzona {

/// a + b. Throws OverflowError when the sum does not fit 64 bits.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw OverflowError("a sum of sizes does not fit a 64-bit integer");
  return sum;
}

/// a · b. Throws OverflowError when the product does not fit 64 bits.
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw OverflowError("a product of sizes does not fit a 64-bit integer");
  return product;
}

/// The smallest multiple of `multiple` that is not below `value`; both non-negative.
inline std::int64_t align_up(std::int64_t value, std::int64_t multiple) {
  return checked_add(value, multiple - 1) / multiple * multiple;
}

}  // namespace canzona
