// The eigendecomposition of a symmetric matrix that never throws and never returns what is not finite.
#pragma once

#include <Eigen/Eigenvalues>
#include <optional>

#include "reference/core/matrix.hpp"

namespace canzona::reference {

/// matrix = vectors · diag(values) · vectorsᵀ, values ascending.
template <class Scalar>
struct Eigenpairs {
  Eigen::Matrix<Scalar, Eigen::Dynamic, 1> values;
  Matrix<Scalar> vectors;
};

/// Eigen's solver in the matrix's own type; nothing where it does not converge.
struct SymmetricSolver {
  template <class Scalar>
  std::optional<Eigenpairs<Scalar>> operator()(const Matrix<Scalar>& matrix) const {
    const Eigen::SelfAdjointEigenSolver<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>> solver(matrix);
    if (solver.info() != Eigen::Success) return std::nullopt;
    return Eigenpairs<Scalar>{solver.eigenvalues(), solver.eigenvectors()};
  }
};

/// Nothing for a matrix that is not finite; solved again in fp64 where `solve` fails or returns what is not finite;
/// nothing where that fails too. Reads the lower triangle.
template <class Scalar, class Solver = SymmetricSolver>
std::optional<Eigenpairs<Scalar>> eigh(const Matrix<Scalar>& matrix, const Solver& solve = {}) {
  const auto usable = [](const auto& pairs) {
    return pairs && pairs->values.allFinite() && pairs->vectors.allFinite();
  };
  if (!matrix.allFinite()) return std::nullopt;
  if (auto pairs = solve(matrix); usable(pairs)) return pairs;
  const auto precise = solve(Matrix<double>(matrix.template cast<double>()));
  if (!usable(precise)) return std::nullopt;
  Eigenpairs<Scalar> pairs{precise->values.template cast<Scalar>(), precise->vectors.template cast<Scalar>()};
  if (!usable(std::optional(pairs))) return std::nullopt;
  return pairs;
}

}  // namespace canzona::reference
