// Functors of elementwise passes and of sums that optimizers share, for launch, launch_rows and launch_sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optimized/device/kernel.hpp"

namespace canzona::optimized {

struct Copy {
  const float* from;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = from[i]; }
};

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

/// M ← μM + w·f·G; U = μM + w·f·G with Nesterov, M without.
struct Momentum {
  float mu;
  float weight;
  float factor;
  bool nesterov;
  const float* gradient;
  float* momentum;
  float* direction;

  CANZONA_KERNEL void operator()(std::int64_t i) {
    const float g = weight * (factor * gradient[i]);
    const float m = mu * momentum[i] + g;
    momentum[i] = m;
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
