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

/// Decoupled weight decay: W ← (1 − lr·wd)·W, then the step; W ← W − lr·(U + wd·W); or the step, then
/// W ← W − lr·wd·W.
enum class DecayForm { before, with_step, after };

DecayForm decay_form(const Options& options);

/// The largest β of a bias-corrected mean: at 1 nothing would ever enter it, and its correction would divide by 0.
constexpr double kBelowOne = 1 - 0x1p-53;

/// Of a step, counted from 1: it rises linearly to lr over the first warmup_steps.
double learning_rate(double lr, std::int64_t warmup_steps, std::int64_t step);

/// lr, warmup_steps, weight_decay and weight_decay_form with these defaults, which every optimizer has, and after them
/// its own.
std::vector<OptionDescription> learning_options(const std::string& lr, const std::string& weight_decay,
                                                const std::string& form, const std::vector<OptionDescription>& own);

/// What an optimizer keeps of one matrix between steps.
template <class Scalar>
struct State {
  std::map<std::string, Matrix<Scalar>> tensors;
  std::int64_t steps = 0;             ///< steps taken
  std::int64_t turn = 0;              ///< a refresh is due when counted steps + turn is a multiple of its period
  std::int64_t failed_refreshes = 0;  ///< refreshes that could not be computed: what was there before was kept
};

/// One optimizer with its options fixed. `Scalar` is the type of master weights and state.
template <class Scalar>
class Optimizer {
 public:
  /// Reads what learning_options describes.
  explicit Optimizer(const Options& options)
      : form_(decay_form(options)),
        lr_(options.number("lr")),
        warmup_steps_(options.integer("warmup_steps")),
        weight_decay_(options.number("weight_decay")) {}
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// The state before the first step of a matrix of this shape.
  virtual State<Scalar> init(Shape shape) const = 0;

  /// The direction U, shaped like `gradient`; advances `state`.
  virtual Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const = 0;

  /// False where a step, counted from 1, only prepares the state: weights neither move nor decay.
  virtual bool moves(std::int64_t /*step*/) const { return true; }

  /// What the U of the `step`-th step does to `count` weights W; weight decay as weight_decay_form says.
  void apply(std::int64_t step, const Scalar* update, Scalar* weights, std::int64_t count) const {
    if (!moves(step)) return;
    const double lr = learning_rate(lr_, warmup_steps_, step);
    const auto rate = static_cast<Scalar>(lr);
    const auto decay = static_cast<Scalar>(weight_decay_);
    const auto product = static_cast<Scalar>(lr * weight_decay_);
    const auto kept = static_cast<Scalar>(1 - lr * weight_decay_);
    for (std::int64_t i = 0; i < count; ++i) {
      switch (form_) {
        case DecayForm::before: weights[i] = kept * weights[i] - rate * update[i]; break;
        case DecayForm::with_step: weights[i] -= rate * (update[i] + decay * weights[i]); break;
        case DecayForm::after:
          weights[i] -= rate * update[i];
          weights[i] -= product * weights[i];
          break;
      }
    }
  }

 private:
  DecayForm form_;
  double lr_;
  std::int64_t warmup_steps_;
  double weight_decay_;
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

  /// The cost of one step of one matrix, without a refresh.
  std::function<MatrixCost(Shape, const Options&)> cost;

  /// Where some steps also refresh what is costly: what that adds, and every how many steps it is due. Such an
  /// optimizer has an option refresh (together, staggered).
  std::function<MatrixCost(Shape, const Options&)> refresh_cost = {};
  std::function<std::int64_t(const Options&)> refresh_period = {};

  /// Options under which a few iterations of a small model reach every branch: what `canzona verify` runs by default.
  std::map<std::string, std::string> verification = {};

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

template <template <class> class Kind, class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Options& options, DType arithmetic) {
  return std::make_unique<Kind<Scalar>>(options, arithmetic);
}

using Optimizers = Registry<OptimizerDescription>;
using OptimizerRegistration = Registration<OptimizerDescription>;

}  // namespace canzona::reference
