#include "optimized/optimizers/muon.hpp"

#include "optimized/optimizers/elementwise.hpp"

namespace canzona::optimized {
namespace {

/// Slots of the workspace: X, ‖X‖² and then 1/‖X‖, those of Newton–Schulz.
enum Slot : std::size_t { kX, kNorms, kNewtonSchulz };

}  // namespace

Muon::Muon(const Preparation& own)
    : workspace_(own.workspace),
      shape_(own.shape),
      count_(own.count()),
      mu_(static_cast<float>(own.options.number("momentum"))),
      weight_(static_cast<float>(own.options.is("momentum_form", "ema") ? 1 - own.options.number("momentum") : 1)),
      nesterov_(own.options.is("nesterov", "on")),
      eps_(own.options.number("eps")),
      adds_eps_(own.options.is("eps_form", "add")),
      scale_(static_cast<float>(reference::muon_scale(own.options.text("scale"), shape_))),
      momentum_type_(parse_dtype(own.options.text("momentum_dtype"), "momentum_dtype")),
      momentum_(own.device.allocate(static_cast<std::size_t>(count_ * shape_.numel() * bytes_of(momentum_type_)))),
      newton_schulz_(
          own.device, own.workspace, kNewtonSchulz, shape_, count_,
          reference::newton_schulz_coefficients(own.options.text("coefficients"), own.options.integer("ns_steps")),
          own.variant, own.arithmetic) {
  workspace_.reserve(kX, count_ * shape_.numel() * static_cast<std::int64_t>(sizeof(float)));
  workspace_.reserve(kNorms, count_ * static_cast<std::int64_t>(sizeof(double)));
}

void Muon::step(Stream& stream, std::int64_t /*number*/, DevicePointer<const StepValues> values,
                DevicePointer<const float> gradient, DevicePointer<float> update) {
  scale(stream, orthogonalized(stream, values, gradient), update);
}

DevicePointer<float> Muon::orthogonalized(Stream& stream, DevicePointer<const StepValues> values,
                                          DevicePointer<const float> gradient) {
  const DevicePointer<float> X = workspace_.slot<float>(kX);
  const DevicePointer<double> norms = workspace_.slot<double>(kNorms);
  const std::int64_t numel = shape_.numel();
  with_weight_type(momentum_type_, [&]<class T>(T) {
    launch(stream, count_ * numel,
           Momentum<T>{mu_, weight_, values.raw(), nesterov_, gradient.raw(), momentum_.as<T>().raw(), X.raw()});
  });
  launch_sums(stream, count_, numel, norms, Square<float>{X.raw()});
  launch(stream, count_, InverseNorm{eps_, adds_eps_, norms.raw()});
  launch_rows(stream, count_, numel, MultiplyRows{norms.raw(), X.raw()});
  newton_schulz_.run(stream, X);
  return X;
}

void Muon::scale(Stream& stream, DevicePointer<const float> stack, DevicePointer<float> update) const {
  launch(stream, count_ * shape_.numel(), Multiply{scale_, stack.raw(), update.raw()});
}

namespace {

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "muon",
    .order = 0,
    .variants = newton_schulz_variants(),
    .make = [](const Preparation& own) { return std::make_unique<Muon>(own); },
    .amplification = newton_schulz_amplification,
    .roundings = newton_schulz_roundings,
    .has_fp64 = true,
}};

}  // namespace
}  // namespace canzona::optimized
