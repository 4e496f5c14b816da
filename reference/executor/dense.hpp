// One device: the oracle that every strategy is compared with. It knows neither plan nor shard.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "reference/executor/objective.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::reference {

/// The two optimizers of a run.
template <class Scalar>
struct OptimizerPair {
  std::unique_ptr<Optimizer<Scalar>> matrix;  ///< for whole matrices; null where the optimizer asked for is elementwise
  std::unique_ptr<Optimizer<Scalar>> elementwise;  ///< for everything else
};

/// A matrix optimizer with AdamW beside it, or an elementwise optimizer for everything.
template <class Scalar>
OptimizerPair<Scalar> make_optimizers(const Workload& workload, DType arithmetic);

/// Some of a model's parameters, to be trained without the others: what depends on all of them has to be given.
struct Excerpt {
  std::vector<int> parameters;
  std::vector<Agreement> agreements;  ///< by iteration
};

/// Trains the workload's model, or an excerpt of it, on the gradients of `mesh.dp` ranks, averaged in rank order.
template <class Scalar>
class DenseReference {
 public:
  DenseReference(const Workload& workload, const Precision& precision, const Objective<Scalar>& objective,
                 const std::optional<Excerpt>& excerpt = {});

  void run(int iterations);

  /// Empty where the excerpt lacks the parameter.
  const Matrix<Scalar>& master(int parameter) const { return masters_[parameter]; }
  const Matrix<Scalar>& weights(int parameter) const { return weights_[parameter]; }
  const Agreement& agreement() const { return agreement_; }  ///< of the last iteration
  std::int64_t steps() const { return steps_; }              ///< iterations that were not skipped
  std::int64_t failed_refreshes() const;

 private:
  void begin(int parameter, const std::vector<std::int64_t>& turns);
  Matrix<Scalar> averaged_gradient(int parameter) const;
  Matrix<Scalar> update(int parameter, const Matrix<Scalar>& gradient);

  Model model_;
  int dp_;
  Training training_;
  Precision precision_;
  Objective<Scalar> objective_;
  OptimizerPair<Scalar> optimizers_;
  std::vector<int> trained_;
  std::optional<std::vector<Agreement>> given_;  // by iteration
  std::int64_t iteration_ = 0;
  std::int64_t steps_ = 0;
  Agreement agreement_;
  std::vector<Matrix<Scalar>> masters_;             // by parameter
  std::vector<Matrix<Scalar>> weights_;             // masters rounded to the model's type
  std::vector<std::vector<State<Scalar>>> states_;  // by parameter, then by block
};

extern template class DenseReference<float>;
extern template class DenseReference<double>;

}  // namespace canzona::reference
