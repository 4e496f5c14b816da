// Functors of elementwise passes and of sums that optimizers share, for launch, launch_rows and launch_sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optimized/device/kernel.hpp"
#include "optimized/device/narrow.hpp"

namespace canzona::optimized {

/// to ← from, rounded where the other type is narrower.
template <class From, class To>
struct Convert {
  const From* from;
  To* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = static_cast<To>(static_cast<Wide<From>>(from[i])); }
};
using Copy = Convert<float, float>;

/// to ← scale·from
struct Multiply {
  float scale;
  const float* from;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = scale * from[i]; }
};

/// Of a sum: ‖values‖².
struct Square {
  const float* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    return static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
};

/// M ← μM + w·f·G, rounded to its type; U = μM + w·f·G with Nesterov, M without.
template <class T>
struct Momentum {
  float mu;
  float weight;
  float factor;
  bool nesterov;
  const float* gradient;
  T* momentum;
  float* direction;

  CANZONA_KERNEL void operator()(std::int64_t i) {
    const float g = weight * (factor * gradient[i]);
    momentum[i] = static_cast<T>(mu * static_cast<float>(momentum[i]) + g);
    const auto m = static_cast<float>(momentum[i]);
    direction[i] = nesterov ? mu * m + g : m;
  }
};

/// By matrix of a stack: ‖X‖² becomes 1/(‖X‖ + eps) or 1/max(‖X‖, eps), in fp64; 0 where X is zero.
struct InverseNorm {
  double eps;
  bool adds;
  double* values;

  CANZONA_KERNEL void operator()(std::int64_t matrix) {
    const double norm = std::sqrt(values[matrix]);
    const double divisor = adds ? norm + eps : std::max(norm, eps);
    values[matrix] = norm == 0 ? 0.0 : 1 / divisor;
  }
};

/// X ← factor·X, for each matrix of a stack.
struct MultiplyRows {
  const double* factors;  // by matrix
  float* values;

  CANZONA_KERNEL void operator()(std::int64_t matrix, std::int64_t i) {
    values[i] = static_cast<float>(factors[matrix] * static_cast<double>(values[i]));
  }
};

}  // namespace canzona::optimized
