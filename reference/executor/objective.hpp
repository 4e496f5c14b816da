// The training problem that executors share: deterministic weights, and gradients that depend on them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "reference/core/dtype.hpp"
#include "reference/core/random.hpp"
#include "reference/core/shape.hpp"
#include "reference/plan/traffic.hpp"

namespace canzona::reference {

/// Element types of a run. Master weights, momentum and moments are fp64 when `arithmetic` is, fp32 otherwise.
struct Precision {
  DType arithmetic = DType::fp32;  ///< of the matrix products
  WireTypes wire;                  ///< of transported gradients and updates, and of model weights
};

/// fp64 and fp32: that type throughout. bf16 and fp16: products, updates and model weights in it, gradients in
/// `gradient`.
inline Precision make_precision(DType arithmetic, DType gradient) {
  switch (arithmetic) {
    case DType::fp64: return {arithmetic, {DType::fp64, DType::fp64, DType::fp64}};
    case DType::fp32: return {arithmetic, {gradient, DType::fp32, DType::fp32}};
    case DType::bf16:
    case DType::fp16: return {arithmetic, {gradient, arithmetic, arithmetic}};
  }
  return {};
}

/// On data-parallel rank r at iteration t, sample s: loss = ⟨N, W⟩ + ½·c·‖W‖² with N = N(t, r, s) random, so the
/// gradient of an element is N + c·W: it can be computed anywhere from the element's index, and a stale weight spoils
/// it.
template <class Scalar>
class Objective {
 public:
  Objective(std::uint64_t seed) : seed_(seed) {}  // NOLINT(google-explicit-constructor): a seed is an objective

  /// Element 0 of `parameter` has no finite gradient on `dp_rank` at `iteration`.
  void poison(std::int64_t iteration, int dp_rank, int parameter) { poison_ = {{iteration, dp_rank, parameter}}; }

  /// Element `index` (row-major in the whole parameter) before the first step.
  Scalar initial_weight(int parameter, std::int64_t index) const {
    // 0.02: initializer_range of Qwen3's config.json.
    return static_cast<Scalar>(
        0.02 * random_normal(random_key({seed_, kWeights, static_cast<std::uint64_t>(parameter)}), index));
  }

  /// The gradients of a parameter over consecutive samples.
  class Gradients {
   public:
    /// `sum` and the gradients of element `index`, added in the order of the samples.
    Scalar add_to(Scalar sum, std::int64_t index, Scalar weight) const {
      for (const std::uint64_t key : keys_)
        sum += static_cast<Scalar>(random_normal(key, index)) + static_cast<Scalar>(kCurvature) * weight;
      return is_poisoned_ && index == 0 ? std::numeric_limits<Scalar>::infinity() : sum;
    }

   private:
    friend class Objective;
    std::vector<std::uint64_t> keys_;
    bool is_poisoned_ = false;
  };

  Gradients gradients(std::int64_t iteration, int dp_rank, int parameter, Range samples) const {
    Gradients gradients;
    for (std::int64_t sample = samples.begin; sample < samples.end; ++sample) {
      gradients.keys_.push_back(
          random_key({seed_, kGradients, static_cast<std::uint64_t>(iteration), static_cast<std::uint64_t>(dp_rank),
                      static_cast<std::uint64_t>(parameter), static_cast<std::uint64_t>(sample)}));
    }
    gradients.is_poisoned_ = poison_ == std::optional(std::tuple(iteration, dp_rank, parameter));
    return gradients;
  }

 private:
  static constexpr std::uint64_t kWeights = 1;
  static constexpr std::uint64_t kGradients = 2;
  static constexpr double kCurvature = 0.5;
  std::uint64_t seed_;
  std::optional<std::tuple<std::int64_t, int, int>> poison_;
};

}  // namespace canzona::reference
