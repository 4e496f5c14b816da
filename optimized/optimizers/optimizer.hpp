// Optimizers on a device: the same steps as reference/optimizers, which they must equal but for rounding.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optimized/device/device.hpp"
#include "optimized/device/launch.hpp"
#include "reference/core/options.hpp"
#include "reference/core/registry.hpp"
#include "reference/core/shape.hpp"

namespace canzona::optimized {

/// Scratch memory that all matrices of one stream share, by slot. It grows while optimizers are prepared, never later.
class Workspace {
 public:
  explicit Workspace(Device& device) : device_(device) {}

  void reserve(std::size_t slot, std::int64_t bytes);
  template <class T>
  DevicePointer<T> slot(std::size_t slot) const {
    return slots_[slot].as<T>();
  }

 private:
  Device& device_;
  std::vector<Buffer> slots_;
};

/// One matrix with its state and everything that its steps need.
class MatrixOptimizer {
 public:
  MatrixOptimizer() = default;
  MatrixOptimizer(const MatrixOptimizer&) = delete;
  MatrixOptimizer& operator=(const MatrixOptimizer&) = delete;
  virtual ~MatrixOptimizer() = default;

  /// update ← the direction of factor·gradient; advances the state. `update` may not be `gradient`.
  virtual void step(Stream& stream, float factor, MatrixIn gradient, MatrixOut update) = 0;
};

/// A registered optimizer; its name, options and defaults are those of its reference.
struct EngineOptimizer {
  static constexpr const char* noun = "optimizer of the engine";

  std::string name;
  int order = 0;
  std::function<std::unique_ptr<MatrixOptimizer>(const Options&, Device&, Workspace&, Shape)> prepare;
};

using EngineOptimizers = Registry<EngineOptimizer>;
using EngineOptimizerRegistration = Registration<EngineOptimizer>;

/// W ← what the U of the reference's apply makes of it, and weights ← W.
void apply_update(Stream& stream, const Options& options, DevicePointer<const float> update,
                  DevicePointer<float> master, DevicePointer<float> weights, std::int64_t count);

}  // namespace canzona::optimized
