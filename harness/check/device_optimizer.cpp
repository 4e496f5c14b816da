#include "harness/check/device_optimizer.hpp"

#include <map>
#include <memory>
#include <utility>

#include "optimized/engine/counting_device.hpp"
#include "optimized/optimizers/optimizer.hpp"

namespace canzona::harness {
namespace {

using optimized::Buffer;
using optimized::StepValues;
using reference::State;

std::string plain_variant(const optimized::EngineOptimizer& optimizer) {
  return optimizer.variants.empty() ? "" : "dense";
}

/// One block with what its steps need.
class Hosted {
 public:
  Hosted(optimized::Device& device, const optimized::EngineOptimizer& optimizer, const Options& options,
         DType arithmetic, Shape shape, std::int64_t turn)
      : device_(device),
        optimizer_(optimizer),
        options_(options),
        workspace_(device),
        own_(optimizer.prepare({options, device, workspace_, shape, {turn}, plain_variant(optimizer), arithmetic})),
        gradient_(device.allocate_elements<float>(shape.numel())),
        update_(device.allocate_elements<float>(shape.numel())),
        values_(device.allocate(sizeof(StepValues))),
        stream_(device.make_stream()) {}

  /// The `number`-th step.
  Matrix<float> step(std::int64_t number, const Matrix<float>& gradient) {
    Matrix<float> update(gradient.rows(), gradient.cols());
    const auto bytes = static_cast<std::size_t>(update.size()) * sizeof(float);
    device_.copy(*stream_, gradient.data(), gradient_.as<float>().raw(), bytes);
    optimized::put(*stream_, optimizer_.values(options_, number, 1), values_.as<StepValues>());
    own_->step(*stream_, number, values_.as<const StepValues>(), gradient_.as<const float>(), update_.as<float>());
    device_.copy(*stream_, update_.as<float>().raw(), update.data(), bytes);
    stream_->synchronize();
    return update;
  }

 private:
  optimized::Device& device_;
  const optimized::EngineOptimizer& optimizer_;
  Options options_;
  optimized::Workspace workspace_;
  std::unique_ptr<optimized::MatrixOptimizer> own_;
  Buffer gradient_, update_, values_;
  std::unique_ptr<optimized::Stream> stream_;
};

class DeviceOptimizer final : public reference::Optimizer<float> {
 public:
  DeviceOptimizer(optimized::Device& device, const std::string& name, const Options& options, DType arithmetic,
                  std::unique_ptr<reference::Optimizer<float>> rule)
      : Optimizer(options),
        device_(device),
        optimizer_(optimized::EngineOptimizers::instance().find(name)),
        options_(options),
        arithmetic_(arithmetic),
        rule_(std::move(rule)) {}

  State<float> init(Shape /*shape*/) const override { return {}; }

  Matrix<float> step(const Matrix<float>& gradient, State<float>& state) const override {
    auto& hosted = hosted_[&state];
    if (!hosted)
      hosted = std::make_unique<Hosted>(device_, optimizer_, options_, arithmetic_, shape_of(gradient), state.turn);
    return hosted->step(++state.steps, gradient);
  }

  bool moves(std::int64_t step) const override { return rule_->moves(step); }

 private:
  optimized::Device& device_;
  const optimized::EngineOptimizer& optimizer_;
  Options options_;
  DType arithmetic_;
  std::unique_ptr<reference::Optimizer<float>> rule_;
  mutable std::map<const State<float>*, std::unique_ptr<Hosted>> hosted_;
};

}  // namespace

reference::OptimizerDescription on_device(reference::OptimizerDescription description, optimized::Device& device,
                                          DType arithmetic) {
  description.make_float = [&device, arithmetic, name = description.name, make = description.make_float](
                               const Options& options, DType of_rule) {
    return std::make_unique<DeviceOptimizer>(device, name, options, arithmetic, make(options, of_rule));
  };
  return description;
}

std::int64_t bytes_on_device(const reference::OptimizerDescription& description, const Options& options, Shape block,
                             optimized::Device& device) {
  const std::unique_ptr<optimized::Device> counting = optimized::make_counting_device(&device);
  const auto& optimizer = optimized::EngineOptimizers::instance().find(description.name);
  const Hosted hosted(*counting, optimizer, options, DType::fp64, block, 0);
  return counting->taken().total();
}

}  // namespace canzona::harness
