// What one iteration trains on, and how its gradient is guarded.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/core/exact_sum.hpp"

namespace canzona {

struct Training {
  int batch = 1;          ///< samples per data-parallel rank and iteration
  int micro_batches = 1;  ///< forward and backward passes that take them in turn; divides batch
  double clip_norm = 0;   ///< the largest global norm of a gradient; 0: never clipped
};

/// What all ranks agree on before any of them updates.
struct Agreement {
  bool skip = false;  ///< some gradient is not finite: weights, state and step count stay as they are
  double norm = 0;    ///< of the averaged gradient, every parameter once
  double factor = 1;  ///< that gradients are multiplied by before momentum
};

/// From the squares of all gradients. factor = clip_norm/(norm + 1e-6) where that is below 1 (Megatron-LM d98e8a64,
/// clip_grads.py).
inline Agreement agree(const ExactSum& squares, double clip_norm) {
  constexpr double kEpsilon = 1e-6;
  Agreement agreement;
  agreement.norm = std::sqrt(squares.value());
  agreement.skip = squares.not_finite() > 0 || !std::isfinite(agreement.norm);
  if (clip_norm > 0 && !agreement.skip) agreement.factor = std::min(1.0, clip_norm / (agreement.norm + kEpsilon));
  return agreement;
}

}  // namespace canzona
