// Optimizers on a device: the same steps as reference/optimizers, which they must equal but for rounding.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optimized/device/device.hpp"
#include "optimized/device/launch.hpp"
#include "optimized/device/narrow.hpp"
#include "optimized/optimizers/step_values.hpp"
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

/// A stack of matrices of one shape with their state and everything that their steps need. Each is updated as if it
/// were alone.
class MatrixOptimizer {
 public:
  MatrixOptimizer() = default;
  MatrixOptimizer(const MatrixOptimizer&) = delete;
  MatrixOptimizer& operator=(const MatrixOptimizer&) = delete;
  virtual ~MatrixOptimizer() = default;

  /// The `number`-th step, counted from 1: update ← the direction of values->factor times the gradient; advances the
  /// state. Both are stacks, one matrix after another, and `update` is not `gradient`. Asynchronous on the stream;
  /// takes no memory.
  virtual void step(Stream& stream, std::int64_t number, DevicePointer<const StepValues> values,
                    DevicePointer<const float> gradient, DevicePointer<float> update) = 0;

  /// Steps of one form put the same on a stream, whatever their numbers, so that one can be captured and serve for all.
  /// None: this step is unlike others, or not made for being captured.
  virtual std::optional<std::int64_t> form(std::int64_t /*number*/) const { return 0; }

  /// Refreshes that could not be computed, so that what was there before was kept; when the stream is idle.
  virtual std::int64_t failed_refreshes() const { return 0; }
};

/// What an optimizer is made for. Its memory, and that of its steps, is taken while it is made.
struct Preparation {
  const Options& options;
  Device& device;
  Workspace& workspace;
  Shape shape;                      ///< of each matrix
  std::vector<std::int64_t> turns;  ///< reference::State::turn of each matrix of the stack
  std::string variant = {};         ///< one of EngineOptimizer::variants, or empty for the first
  /// Of the products of an orthogonalization; where it is fp64 of factors too, and what becomes of them. Whoever takes
  /// the update rounds it.
  DType arithmetic = DType::fp32;

  std::int64_t count() const { return static_cast<std::int64_t>(turns.size()); }
};

/// A registered optimizer; its name, options and defaults are those of its reference.
struct EngineOptimizer {
  static constexpr const char* noun = "optimizer of the engine";

  std::string name;
  int order = 0;
  std::vector<std::string> variants = {};  ///< ways to compute the same, the usual one first; none: there is one way
  /// Of a preparation whose variant is one of `variants`, or empty where there are none.
  std::function<std::unique_ptr<MatrixOptimizer>(const Preparation&)> make;
  /// Of the means of its `number`-th step, where it has any to correct.
  std::function<Corrections(const Options&, std::int64_t number)> corrections = {};
  /// In fp32, ‖ΔU‖/‖U‖ ÷ ε that rounding may reach in a variant, where that is known in closed form; 0: the same
  /// expressions, the same bits.
  std::function<std::optional<double>(const Options&, const std::string& variant)> amplification = {};
  /// How often a bf16 or fp16 run rounds a matrix on the way to its update, the engine's roundings and the reference's
  /// together; none: they compute in fp32, and round the update alone.
  std::function<std::int64_t(const Options&)> roundings = {};
  bool has_fp64 = false;  ///< it can be prepared for arithmetic in fp64; gradients, updates and step values are in fp32

  /// Throws InputError unless `variant` is empty or one of them.
  void require_variant(const std::string& variant) const;

  /// Of the `number`-th step, counted from 1, of factor times the gradient.
  StepValues values(const Options& options, std::int64_t number, double factor) const;

  /// Of the variant asked for, which is checked, or else the first.
  std::unique_ptr<MatrixOptimizer> prepare(Preparation own) const;
};

using EngineOptimizers = Registry<EngineOptimizer>;
using EngineOptimizerRegistration = Registration<EngineOptimizer>;

/// W ← what the U of the reference's apply makes of it at the step's rate, and weights ← W rounded to their type. U is
/// float, or in the type of the weights; where that is float, the master weights may be the weights.
template <class Update, class Weight>
void apply_update(Stream& stream, const Options& options, DevicePointer<const StepValues> values,
                  DevicePointer<const Update> update, DevicePointer<float> master, DevicePointer<Weight> weights,
                  std::int64_t count);

}  // namespace canzona::optimized
