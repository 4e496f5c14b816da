// Functors of elementwise passes and of sums that optimizers share, for launch, launch_rows and launch_sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optimized/device/functors.hpp"
#include "optimized/device/kernel.hpp"
#include "optimized/optimizers/step_values.hpp"

namespace canzona::optimized {

/// to ← f·from, f the factor of the step.
template <class T>
struct TakeGradient {
  const StepValues* values;
  const float* from;
  T* to;
  T factor = 0;

  CANZONA_KERNEL void load() { factor = values->factor; }
  CANZONA_OPERANDS(from, Out{to})
  CANZONA_KERNEL void operator()(float g, T& own) const { own = factor * static_cast<T>(g); }
};

/// to ← scale·from
struct Multiply {
  float scale;
  const float* from;
  float* to;

  CANZONA_OPERANDS(from, Out{to})
  CANZONA_KERNEL void operator()(float own_from, float& own_to) const { own_to = scale * own_from; }
};

/// Of a sum: ‖values‖².
template <class T>
struct Square {
  const T* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    return static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
};

/// M ← μM + w·f·G, rounded to its type; U = μM + w·f·G with Nesterov, M without.
template <class T>
struct Momentum {
  float mu;
  float weight;
  const StepValues* values;
  bool nesterov;
  const float* gradient;
  T* momentum;
  float* direction;
  float factor = 0;

  CANZONA_KERNEL void load() { factor = values->factor; }
  CANZONA_OPERANDS(gradient, momentum, Out{direction})
  CANZONA_KERNEL void operator()(float own_gradient, T& own_momentum, float& own_direction) const {
    const float g = weight * (factor * own_gradient);
    own_momentum = static_cast<T>(mu * static_cast<float>(own_momentum) + g);
    const auto m = static_cast<float>(own_momentum);
    own_direction = nesterov ? mu * m + g : m;
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
