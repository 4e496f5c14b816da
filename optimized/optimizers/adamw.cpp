// AdamW on a device. Must equal reference/optimizers/adamw.cpp, whose expressions these are.
#include <cmath>

#include "optimized/optimizers/optimizer.hpp"

namespace canzona::optimized {
namespace {

struct Step {
  float b1, one_minus_b1, b2, one_minus_b2, eps;
  const StepValues* values;
  const float* gradient;
  float* m;
  float* v;
  float* update;
  float factor = 0, correction1 = 0, correction2 = 0;

  CANZONA_KERNEL void load() {
    factor = values->factor;
    correction1 = values->corrections.first;
    correction2 = values->corrections.second;
  }
  CANZONA_OPERANDS(gradient, m, v, Out{update})
  CANZONA_KERNEL void operator()(float own_gradient, float& own_m, float& own_v, float& own_update) const {
    const float g = factor * own_gradient;
    own_m = b1 * own_m + one_minus_b1 * g;
    own_v = b2 * own_v + one_minus_b2 * g * g;
    own_update = (own_m / correction1) / (std::sqrt(own_v) / correction2 + eps);
  }
};

class AdamW final : public MatrixOptimizer {
 public:
  explicit AdamW(const Preparation& own)
      : beta1_(own.options.number("beta1")),
        beta2_(own.options.number("beta2")),
        eps_(own.options.number("eps")),
        size_(own.count() * own.shape.numel()),
        m_(own.device.allocate_elements<float>(size_)),
        v_(own.device.allocate_elements<float>(size_)) {}

  void step(Stream& stream, std::int64_t /*number*/, DevicePointer<const StepValues> values,
            DevicePointer<const float> gradient, DevicePointer<float> update) override {
    launch(stream, size_,
           Step{static_cast<float>(beta1_), static_cast<float>(1 - beta1_), static_cast<float>(beta2_),
                static_cast<float>(1 - beta2_), static_cast<float>(eps_), values.raw(), gradient.raw(),
                m_.as<float>().raw(), v_.as<float>().raw(), update.raw()});
  }

 private:
  double beta1_;
  double beta2_;
  double eps_;
  std::int64_t size_;
  Buffer m_;
  Buffer v_;
};

/// 1 − β₁ᵗ and √(1 − β₂ᵗ)
Corrections corrections(const Options& options, std::int64_t number) {
  const auto t = static_cast<double>(number);
  return {static_cast<float>(1 - std::pow(options.number("beta1"), t)),
          static_cast<float>(std::sqrt(1 - std::pow(options.number("beta2"), t)))};
}

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "adamw",
    .order = 10,
    .make = [](const Preparation& own) { return std::make_unique<AdamW>(own); },
    .corrections = corrections,
    .amplification = [](const Options&, const std::string&) { return 0.0; },
}};

}  // namespace
}  // namespace canzona::optimized
