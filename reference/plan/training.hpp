// What one iteration trains on, and how its gradient is guarded.
#pragma once

#include <vector>

#include "reference/core/exact_sum.hpp"
#include "reference/plan/plan.hpp"

namespace canzona {

struct Training {
  int batch = 1;          ///< samples per data-parallel rank and iteration
  int micro_batches = 1;  ///< forward and backward passes that take them in turn; divides batch
  double clip_norm = 0;   ///< the largest global norm of a gradient; 0: never clipped
};

/// What all ranks agree on before any of them updates.
struct Agreement {
  bool skip = false;  ///< some gradient or the norm is not finite: weights, state and step count stay as they are
  double norm = 0;    ///< of the averaged gradient, every parameter once
  double factor = 1;  ///< that gradients are multiplied by before momentum
};

/// From the squares of all gradients. factor = clip_norm/(norm + 1e-6) where that is below 1 (Megatron-LM d98e8a64,
/// clip_grads.py).
Agreement agree(const ExactSum& squares, double clip_norm);

/// The elements of the buffer whose squares a rank adds up, so that every parameter is counted once: those that it
/// owns, or an even share where all ranks own all; a parameter that every TP rank holds is counted by the first.
std::vector<Range> counted_elements(const Plan& plan, const Model& model, const GradientBuffer& buffer,
                                    const Coordinate& at);

}  // namespace canzona
