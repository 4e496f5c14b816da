// AdamW on a device. Must equal reference/optimizers/adamw.cpp, whose expressions these are.
#include <cmath>

#include "optimized/optimizers/optimizer.hpp"

namespace canzona::optimized {
namespace {

struct Step {
  float b1, one_minus_b1, b2, one_minus_b2, correction1, correction2, eps, factor;
  const float* gradient;
  float* m;
  float* v;
  float* update;

  CANZONA_KERNEL void operator()(std::int64_t i) {
    const float g = factor * gradient[i];
    m[i] = b1 * m[i] + one_minus_b1 * g;
    v[i] = b2 * v[i] + one_minus_b2 * g * g;
    update[i] = (m[i] / correction1) / (std::sqrt(v[i]) / correction2 + eps);
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

  void step(Stream& stream, float factor, DevicePointer<const float> gradient, DevicePointer<float> update) override {
    const auto t = static_cast<double>(++steps_);
    launch(stream, size_,
           Step{static_cast<float>(beta1_), static_cast<float>(1 - beta1_), static_cast<float>(beta2_),
                static_cast<float>(1 - beta2_), static_cast<float>(1 - std::pow(beta1_, t)),
                static_cast<float>(std::sqrt(1 - std::pow(beta2_, t))), static_cast<float>(eps_), factor,
                gradient.raw(), m_.as<float>().raw(), v_.as<float>().raw(), update.raw()});
  }

 private:
  double beta1_;
  double beta2_;
  double eps_;
  std::int64_t size_;
  Buffer m_;
  Buffer v_;
  std::int64_t steps_ = 0;
};

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "adamw",
    .order = 10,
    .make = [](const Preparation& own) { return std::make_unique<AdamW>(own); },
    .amplification = [](const Options&, const std::string&) { return 0.0; },
}};

}  // namespace
}  // namespace canzona::optimized
