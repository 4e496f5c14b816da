// Functors that every part of this floor has use for.
#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/device/narrow.hpp"
#include "optimized/device/operands.hpp"

namespace canzona::optimized {

template <class T>
struct Fill {
  T value;
  T* values;
  CANZONA_KERNEL void operator()(std::int64_t i) { values[i] = value; }
};

/// to ← from, rounded where the other type is narrower.
template <class From, class To>
struct Convert {
  const From* from;
  To* to;

  CANZONA_OPERANDS(from, Out{to})
  CANZONA_KERNEL void operator()(From own_from, To& own_to) const {
    own_to = static_cast<To>(static_cast<Wide<From>>(own_from));
  }
};
template <class T>
using Copy = Convert<T, T>;

/// Of a sum: how many values are not finite.
template <class T>
struct NotFinite {
  const T* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return std::isfinite(values[i]) ? 0 : 1; }
};

}  // namespace canzona::optimized
