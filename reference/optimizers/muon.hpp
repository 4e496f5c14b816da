// Muon, open to optimizers that do something more with its orthogonalized momentum.
#pragma once

#include <string>
#include <vector>

#include "reference/optimizers/newton_schulz.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::reference {

/// Momentum, orthogonalized by Newton–Schulz, scaled by the matrix's shape.
template <class Scalar>
class Muon : public Optimizer<Scalar> {
 public:
  /// Reads muon_options; the products run in `arithmetic`.
  Muon(const Options& options, DType arithmetic);

  State<Scalar> init(Shape shape) const override;
  Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const override;

 protected:
  /// Advances the momentum and orthogonalizes it; counts the step.
  Matrix<Scalar> orthogonalized(const Matrix<Scalar>& gradient, State<Scalar>& state) const;

  /// `update` times the factor of its shape, in the type of the arithmetic: that is what travels back to the shards.
  Matrix<Scalar> scaled(const Matrix<Scalar>& update) const;

 private:
  double momentum_;
  DType momentum_type_;
  bool ema_;
  bool nesterov_;
  std::vector<Coefficients> coefficients_;
  double eps_;
  EpsForm eps_form_;
  std::string scale_;
  DType arithmetic_;
};

/// What `scale` makes of a shape: 0.2·√max(rows, cols) and so on.
double muon_scale(const std::string& scale, Shape shape);

/// Muon's options, to stand after those of learning_options, and after them an optimizer's own.
std::vector<OptionDescription> muon_options(const std::vector<OptionDescription>& own = {});

/// Muon's cost of one step: Newton–Schulz and the passes over the matrix.
MatrixCost muon_cost(Shape shape, const Options& options);

extern template class Muon<float>;
extern template class Muon<double>;

}  // namespace canzona::reference
