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
  static constexpr double kCurvature = 0.5;  ///< c

  Objective(std::uint64_t seed) : seed_(seed) {}  // NOLINT(google-explicit-constructor): a seed is an objective

  /// Element 0 of `parameter` has no finite gradient on `dp_rank` at `iteration`.
  void poison(std::int64_t iteration, int dp_rank, int parameter) { poison_ = {{iteration, dp_rank, parameter}}; }
  bool is_poisoned(std::int64_t iteration, int dp_rank, int parameter) const {
    return poison_ == std::optional(std::tuple(iteration, dp_rank, parameter));
  }

  /// N recurs every so many iterations, so that an executor may draw it beforehand; 0: it never does.
  void recur(std::int64_t period) { period_ = period; }
  std::int64_t period() const { return period_; }

  /// Changes gradients by at most one `unit` in their last place each, at random: what that does to a run is what
  /// rounding to such units may do to it.
  void disturb(std::uint64_t seed, double unit = std::numeric_limits<Scalar>::epsilon()) {
    disturbance_ = seed;
    unit_ = static_cast<Scalar>(unit);
  }

  /// Element `index` (row-major in the whole parameter) before the first step.
  Scalar initial_weight(int parameter, std::int64_t index) const {
    // 0.02: initializer_range of Qwen3's config.json.
    return static_cast<Scalar>(
        0.02 * random_normal(random_key({seed_, kWeights, static_cast<std::uint64_t>(parameter)}), index));
  }

  /// N of element `index` of a parameter.
  Scalar noise(std::int64_t iteration, int dp_rank, int parameter, std::int64_t sample, std::int64_t index) const {
    return static_cast<Scalar>(random_normal(noise_key(iteration, dp_rank, parameter, sample), index));
  }

  /// The gradients of a parameter over consecutive samples.
  class Gradients {
   public:
    /// `sum` and the gradients of element `index`, added in the order of the samples.
    Scalar add_to(Scalar sum, std::int64_t index, Scalar weight) const {
      for (const std::uint64_t key : keys_)
        sum += static_cast<Scalar>(random_normal(key, index)) + static_cast<Scalar>(kCurvature) * weight;
      if (disturbance_) {
        const auto third = static_cast<int>(random_bits(*disturbance_, index) % 3) - 1;
        sum *= 1 + static_cast<Scalar>(third) * unit_;
      }
      return is_poisoned_ && index == 0 ? std::numeric_limits<Scalar>::infinity() : sum;
    }

   private:
    friend class Objective;
    std::vector<std::uint64_t> keys_;
    std::optional<std::uint64_t> disturbance_;
    Scalar unit_ = 0;
    bool is_poisoned_ = false;
  };

  Gradients gradients(std::int64_t iteration, int dp_rank, int parameter, Range samples) const {
    Gradients gradients;
    for (std::int64_t sample = samples.begin; sample < samples.end; ++sample)
      gradients.keys_.push_back(noise_key(iteration, dp_rank, parameter, sample));
    gradients.is_poisoned_ = is_poisoned(iteration, dp_rank, parameter);
    if (disturbance_) {
      gradients.unit_ = unit_;
      gradients.disturbance_ = random_key({*disturbance_, static_cast<std::uint64_t>(iteration),
                                           static_cast<std::uint64_t>(dp_rank), static_cast<std::uint64_t>(parameter)});
    }
    return gradients;
  }

 private:
  std::uint64_t noise_key(std::int64_t iteration, int dp_rank, int parameter, std::int64_t sample) const {
    const std::int64_t drawn = period_ > 0 ? iteration % period_ : iteration;
    return random_key({seed_, kGradients, static_cast<std::uint64_t>(drawn), static_cast<std::uint64_t>(dp_rank),
                       static_cast<std::uint64_t>(parameter), static_cast<std::uint64_t>(sample)});
  }

  static constexpr std::uint64_t kWeights = 1;
  static constexpr std::uint64_t kGradients = 2;
  std::uint64_t seed_;
  std::int64_t period_ = 0;
  std::optional<std::uint64_t> disturbance_;
  Scalar unit_ = 0;
  std::optional<std::tuple<std::int64_t, int, int>> poison_;
};

}  // namespace canzona::reference
