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

  void operator()(std::int64_t i) {
    const float g = factor * gradient[i];
    m[i] = b1 * m[i] + one_minus_b1 * g;
    v[i] = b2 * v[i] + one_minus_b2 * g * g;
    update[i] = (m[i] / correction1) / (std::sqrt(v[i]) / correction2 + eps);
  }
};

class AdamW final : public MatrixOptimizer {
 public:
  AdamW(const Options& options, Device& device, Workspace&, Shape shape)
      : beta1_(options.number("beta1")),
        beta2_(options.number("beta2")),
        eps_(options.number("eps")),
        m_(device.allocate_elements<float>(shape.numel())),
        v_(device.allocate_elements<float>(shape.numel())) {}

  void step(Stream& stream, float factor, MatrixIn gradient, MatrixOut update) override {
    const auto t = static_cast<double>(++steps_);
    launch(stream, update.size(),
           Step{static_cast<float>(beta1_), static_cast<float>(1 - beta1_), static_cast<float>(beta2_),
                static_cast<float>(1 - beta2_), static_cast<float>(1 - std::pow(beta1_, t)),
                static_cast<float>(std::sqrt(1 - std::pow(beta2_, t))), static_cast<float>(eps_), factor,
                gradient.data.raw(), m_.as<float>().raw(), v_.as<float>().raw(), update.data.raw()});
  }

 private:
  double beta1_;
  double beta2_;
  double eps_;
  Buffer m_;
  Buffer v_;
  std::int64_t steps_ = 0;
};

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "adamw",
    .order = 10,
    .prepare = [](const Options& options, Device& device, Workspace& workspace,
                  Shape shape) { return std::make_unique<AdamW>(options, device, workspace, shape); },
}};

}  // namespace
}  // namespace canzona::optimized
