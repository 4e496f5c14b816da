#include "optimized/optimizers/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "optimized/optimizers/elementwise.hpp"
#include "reference/core/error.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::optimized {
namespace {

using reference::DecayForm;

/// The expressions of reference::Optimizer::apply.
template <class Update, class Weight>
struct Apply {
  DecayForm form;
  float decay;
  const StepValues* values;
  const Update* update;
  float* master;
  Weight* weights;
  float rate = 0, product = 0, kept = 0;

  CANZONA_KERNEL void load() {
    rate = values->rate;
    product = values->product;
    kept = values->kept;
  }
  CANZONA_OPERANDS(update, master, Out{weights})
  CANZONA_KERNEL void operator()(Update own_update, float& own_master, Weight& own_weight) const {
    const auto u = static_cast<float>(own_update);
    float w = own_master;
    if (form == DecayForm::before) {
      w = kept * w - rate * u;
    } else if (form == DecayForm::with_step) {
      w -= rate * (u + decay * w);
    } else {
      w -= rate * u;
      w -= product * w;
    }
    own_master = w;
    own_weight = static_cast<Weight>(w);
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

StepValues EngineOptimizer::values(const Options& options, std::int64_t number, double factor) const {
  const double lr = reference::learning_rate(options.number("lr"), options.integer("warmup_steps"), number);
  const double product = lr * options.number("weight_decay");
  return {static_cast<float>(factor), corrections ? corrections(options, number) : Corrections{},
          static_cast<float>(lr), static_cast<float>(product), static_cast<float>(1 - product)};
}

void put(Stream& stream, const StepValues& values, DevicePointer<StepValues> to) {
  launch(stream, 1, Fill<StepValues>{values, to.raw()});
}

std::unique_ptr<MatrixOptimizer> EngineOptimizer::prepare(Preparation own) const {
  require_variant(own.variant);
  if (own.variant.empty() && !variants.empty()) own.variant = variants.front();
  return make(own);
}

template <class Update, class Weight>
void apply_update(Stream& stream, const Options& options, DevicePointer<const StepValues> values,
                  DevicePointer<const Update> update, DevicePointer<float> master, DevicePointer<Weight> weights,
                  std::int64_t count) {
  const auto decay = static_cast<float>(options.number("weight_decay"));
  launch(stream, count,
         Apply<Update, Weight>{reference::decay_form(options), decay, values.raw(), update.raw(), master.raw(),
                               weights.raw()});
}

template void apply_update(Stream&, const Options&, DevicePointer<const StepValues>, DevicePointer<const float>,
                           DevicePointer<float>, DevicePointer<float>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const StepValues>, DevicePointer<const float>,
                           DevicePointer<float>, DevicePointer<Bf16>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const StepValues>, DevicePointer<const float>,
                           DevicePointer<float>, DevicePointer<Fp16>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const StepValues>, DevicePointer<const Bf16>,
                           DevicePointer<float>, DevicePointer<Bf16>, std::int64_t);
template void apply_update(Stream&, const Options&, DevicePointer<const StepValues>, DevicePointer<const Fp16>,
                           DevicePointer<float>, DevicePointer<Fp16>, std::int64_t);

}  // namespace canzona::optimized
