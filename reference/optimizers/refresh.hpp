// What optimizers with preconditioners share: one matrix's two sides, and when they are refreshed.
#pragma once

#include <string>
#include <vector>

#include "reference/optimizers/optimizer.hpp"

namespace canzona::reference {

/// precondition_frequency and refresh, with this default frequency, and after them the optimizer's own.
std::vector<OptionDescription> refresh_options(const std::string& frequency, const std::vector<OptionDescription>& own);

/// precondition_frequency.
std::int64_t refresh_period(const Options& options);

/// max_precond_dim: a side that is strictly longer keeps the identity.
OptionDescription max_precond_dim_option(const std::string& standard);

/// The sides of a matrix of this shape that are preconditioned, in elements: rows, columns, both or none.
std::vector<std::int64_t> preconditioned_sides(Shape shape, std::int64_t max_precond_dim);

/// A ← decay·A + weight·(left: G·Gᵀ, right: Gᵀ·G)
template <class Scalar>
void accumulate_factor(Matrix<Scalar>& factor, const Matrix<Scalar>& gradient, bool left, double decay, double weight) {
  const Matrix<Scalar> product =
      left ? Matrix<Scalar>(gradient * gradient.transpose()) : Matrix<Scalar>(gradient.transpose() * gradient);
  factor = static_cast<Scalar>(decay) * factor + static_cast<Scalar>(weight) * product;
}

}  // namespace canzona::reference
