// A^(−1/p) of a symmetric positive semi-definite matrix, three ways.
#pragma once

#include <optional>
#include <string>

#include "reference/core/matrix.hpp"

namespace canzona::reference {

/// How an inverse root is computed. Defaults of facebookresearch/optimizers@f606606,
/// matrix_functions_types.py.
struct RootMethod {
  enum class Kind { eigen, coupled_newton, coupled_higher_order };

  Kind kind = Kind::eigen;
  std::int64_t max_iterations = 100;     ///< of the coupled iterations
  std::optional<double> tolerance = {};  ///< they stop when no element of M − I is larger; 1e-6, higher order 1e-8
  std::int64_t order = 3;                ///< of coupled_higher_order; 2 is Newton
  double rel_epsilon = 0;                ///< coupled_higher_order adds at least this times the largest row sum of |A|
};

/// eigen, coupled_newton or coupled_higher_order. Throws InputError on another name.
RootMethod::Kind root_method(const std::string& name);

/// Whether coupled iterations can find this root: it is an integer but for rounding.
bool is_coupled_root(double root);

/// (A + epsilon·I)^(−1/root), A square and symmetric. eigen: of eigenvalues below epsilon, all are shifted so that the
/// smallest equals it. The coupled iterations need an integer root; after max_iterations they return what they reached.
/// Nothing where A or the result X is not finite, no eigendecomposition was found, or coupled_higher_order left an
/// element of A·X^p − I above 0.1.
template <class Scalar>
std::optional<Matrix<Scalar>> inverse_root(const Matrix<Scalar>& A, double root, double epsilon,
                                           const RootMethod& method);

extern template std::optional<Matrix<float>> inverse_root(const Matrix<float>&, double, double, const RootMethod&);
extern template std::optional<Matrix<double>> inverse_root(const Matrix<double>&, double, double, const RootMethod&);

}  // namespace canzona::reference
