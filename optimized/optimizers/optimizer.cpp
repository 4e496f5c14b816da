#include "optimized/optimizers/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/core/error.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::optimized {
namespace {

using reference::DecayForm;

/// The expressions of reference::Optimizer::apply.
template <class Update, class Weight>
struct Apply {
  DecayForm form;
  float rate;
  float decay;
  float product;
  float kept;
  const Update* update;
  float* master;
  Weight* weights;

  CANZONA_KERNEL void operator()(std::int64_t i) {
    const auto u = static_cast<float>(update[i]);
    float w = master[i];
    if (form == DecayForm::before) {
      w = kept * w - rate * u;
    } else if (form == DecayForm::with_step) {
      w -= rate * (u + decay * w);
    } else {
      w -= rate * u;
      w -= product * w;
    }
    master[i] = w;
    weights[i] = static_cast<Weight>(w);
  }
};

}  // namespace

void Workspace::reserve(std::size_t slot, std::int64_t bytes) {
  if (slots_.size() <= slot) slots_.resize(slot + 1);
  if (slots_[slot].bytes() >= static_cast<std::size_t>(bytes)) return;
  const Device::Taking taking(device_, Purpose::scratch);
  slots_[slot] = device_.allocate(static_cast<std::size_t>(bytes));
}

void EngineOptimizer::require_variant(const std::string& variant) const {
  if (variant.empty() || std::find(variants.begin(), variants.end(), variant) != variants.end()) return;
  throw InputError("", fmt::format("variant of {}", name), fmt::format("'{}'", variant),
                   variants.empty() ? "none, there is one way" : fmt::format("{}", fmt::join(variants, ", ")));
}

std::unique_ptr<MatrixOptimizer> EngineOptimizer::prepare(Preparation own) const {
  require_variant(own.variant);
  if (own.variant.empty() && !variants.empty()) own.variant = variants.front();
  return make(own);
}

template <class Update, class Weight>
void apply_update(Stream& stream, const Options& options, DevicePointer<const Update> update,
                  DevicePointer<float> master, DevicePointer<Weight> weights, std::int64_t count) {
  const double lr = options.number("lr");
  const double decay = options.number("weight_decay");
  launch(stream, count,
         Apply<Update, Weight>{reference::decay_form(options), static_cast<float>(lr), static_cast<float>(decay),
                               static_cast<float>(lr * decay), static_cast<float>(1 - lr * decay), update.raw(),
                               master.raw(), weights.raw()});
}

template void apply_update(Stream&, const Options&, DevicePointer<const float>, DevicePointer<float>,
                           DevicePointer<float>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const float>, DevicePointer<float>,
                           DevicePointer<Bf16>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const float>, DevicePointer<float>,
                           DevicePointer<Fp16>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const Bf16>, DevicePointer<float>,
                           DevicePointer<Bf16>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const Fp16>, DevicePointer<float>,
                           DevicePointer<Fp16>, std::int64_t);

}  // namespace canzona::optimized
