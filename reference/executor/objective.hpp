// The training problem that executors share: deterministic weights, and gradients that depend on them.
#pragma once

#include <cstdint>

#include "reference/core/dtype.hpp"
#include "reference/core/random.hpp"
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

/// On data-parallel rank r at iteration t: loss = ⟨N, W⟩ + ½·c·‖W‖² with N = N(t, r) random, so the gradient of an
/// element is N + c·W: it can be computed anywhere from the element's index, and a stale weight spoils it.
template <class Scalar>
class Objective {
 public:
  explicit Objective(std::uint64_t seed) : seed_(seed) {}

  /// Element `index` (row-major in the whole parameter) before the first step.
  Scalar initial_weight(int parameter, std::int64_t index) const {
    // 0.02: initializer_range of Qwen3's config.json.
    return static_cast<Scalar>(
        0.02 * random_normal(random_key({seed_, kWeights, static_cast<std::uint64_t>(parameter)}), index));
  }

  /// The random stream of a parameter's gradient, to be passed to `gradient` for its elements.
  std::uint64_t gradient_key(std::int64_t iteration, int dp_rank, int parameter) const {
    return random_key({seed_, kGradients, static_cast<std::uint64_t>(iteration), static_cast<std::uint64_t>(dp_rank),
                       static_cast<std::uint64_t>(parameter)});
  }
  Scalar gradient(std::uint64_t key, std::int64_t index, Scalar weight) const {
    return static_cast<Scalar>(random_normal(key, index)) + static_cast<Scalar>(kCurvature) * weight;
  }

 private:
  static constexpr std::uint64_t kWeights = 1;
  static constexpr std::uint64_t kGradients = 2;
  static constexpr double kCurvature = 0.5;
  std::uint64_t seed_;
};

}  // namespace canzona::reference
