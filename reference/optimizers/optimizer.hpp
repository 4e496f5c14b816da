// The dense optimizers: what one device would do with the whole matrix. They never see a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reference/core/dtype.hpp"
#include "reference/core/matrix.hpp"
#include "reference/core/options.hpp"
#include "reference/core/registry.hpp"
#include "reference/plan/cost.hpp"

namespace canzona::reference {

/// What an optimizer keeps of one matrix between steps: tensors by name, and the steps taken.
template <class Scalar>
struct State {
  std::map<std::string, Matrix<Scalar>> tensors;
  std::int64_t steps = 0;
};

/// One optimizer with its options fixed. `Scalar` is the type of master weights and state.
template <class Scalar>
class Optimizer {
 public:
  Optimizer(double learning_rate, double weight_decay)
      : decay_(static_cast<Scalar>(1 - learning_rate * weight_decay)), rate_(static_cast<Scalar>(learning_rate)) {}
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// The state before the first step of a matrix of this shape.
  virtual State<Scalar> init(Shape shape) const = 0;

  /// The direction U, shaped like `gradient`; advances `state`.
  virtual Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const = 0;

  /// W ← (1 − lr·wd)·W − lr·U on `count` elements: decoupled weight decay, first.
  void apply(const Scalar* update, Scalar* weights, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) weights[i] = decay_ * weights[i] - rate_ * update[i];
  }

 private:
  Scalar decay_;
  Scalar rate_;
};

/// A registered optimizer.
struct OptimizerDescription {
  static constexpr const char* noun = "optimizer";

  std::string name;
  int order = 0;
  std::string description;
  std::string citation;
  std::vector<OptionDescription> options;
  bool needs_whole_matrix = true;  ///< false: elementwise, so any cut of a parameter is as good as another

  /// The cost of one step of one matrix.
  std::function<MatrixCost(Shape, const Options&)> cost;

  /// Makes the optimizer; `arithmetic` is the type its matrix products run in (fp64 needs Scalar = double).
  std::function<std::unique_ptr<Optimizer<double>>(const Options&, DType arithmetic)> make_double;
  std::function<std::unique_ptr<Optimizer<float>>(const Options&, DType arithmetic)> make_float;

  template <class Scalar>
  std::unique_ptr<Optimizer<Scalar>> make(const Options& values, DType arithmetic) const {
    if constexpr (sizeof(Scalar) == sizeof(double)) {
      return make_double(values, arithmetic);
    } else {
      return make_float(values, arithmetic);
    }
  }
};

using Optimizers = Registry<OptimizerDescription>;
using OptimizerRegistration = Registration<OptimizerDescription>;

}  // namespace canzona::reference
