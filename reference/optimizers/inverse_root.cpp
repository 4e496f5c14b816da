#include "reference/optimizers/inverse_root.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/core/error.hpp"
#include "reference/optimizers/eigh.hpp"

namespace canzona::reference {
namespace {

template <class Scalar>
Matrix<Scalar> identity(std::int64_t size) {
  return Matrix<Scalar>::Identity(size, size);
}

template <class Scalar>
Matrix<Scalar> with_ridge(const Matrix<Scalar>& A, double epsilon) {
  return A + static_cast<Scalar>(epsilon) * identity<Scalar>(A.rows());
}

/// The largest element of M − I. NaN where M has one.
template <class Scalar>
double distance_from_identity(const Matrix<Scalar>& M) {
  return static_cast<double>((M - identity<Scalar>(M.rows())).cwiseAbs().template maxCoeff<Eigen::PropagateNaN>());
}

/// By squaring.
template <class Scalar>
Matrix<Scalar> power(const Matrix<Scalar>& base, int exponent) {
  if (exponent == 1) return base;
  const Matrix<Scalar> half = power(base, exponent / 2);
  const Matrix<Scalar> square = half * half;
  return exponent % 2 == 0 ? square : Matrix<Scalar>(square * base);
}

/// A + εI = Q diag(λ) Qᵀ  →  Q diag(λ^(−1/p)) Qᵀ
template <class Scalar>
std::optional<Matrix<Scalar>> by_eigenvalues(const Matrix<Scalar>& A, double root, double epsilon) {
  auto pairs = eigh(with_ridge(A, epsilon));
  if (!pairs) return std::nullopt;
  const auto least = static_cast<Scalar>(epsilon);
  if (const Scalar smallest = pairs->values.minCoeff(); smallest < least) pairs->values.array() += least - smallest;
  const Matrix<Scalar> powers = pairs->values.array().pow(static_cast<Scalar>(-1 / root)).matrix().asDiagonal();
  return Matrix<Scalar>(pairs->vectors * powers * pairs->vectors.transpose());
}

/// X and M = X^p·A, iterated until M = I: then X = A^(−1/p).
template <class Scalar>
struct Coupled {
  Matrix<Scalar> X;
  Matrix<Scalar> M;

  /// X ← X·N, M ← N^p·M
  void advance(const Matrix<Scalar>& N, int p) {
    X = X * N;
    M = power(N, p) * M;
  }
};

/// X = z^(1/p)·I, M = z·A
template <class Scalar>
Coupled<Scalar> begin(const Matrix<Scalar>& A, double z, int p) {
  return {static_cast<Scalar>(std::pow(z, 1.0 / p)) * identity<Scalar>(A.rows()), static_cast<Scalar>(z) * A};
}

/// N = (1 + 1/p)·I − M/p
template <class Scalar>
Matrix<Scalar> newton_factor(const Matrix<Scalar>& M, int p) {
  const double alpha = -1.0 / p;
  return static_cast<Scalar>(alpha) * M + static_cast<Scalar>(1 - alpha) * identity<Scalar>(M.rows());
}

/// z = (p + 1)/(2‖A‖_F) puts every eigenvalue of M where Newton's iteration converges.
template <class Scalar>
Matrix<Scalar> by_newton(const Matrix<Scalar>& A, int p, const RootMethod& method) {
  Coupled<Scalar> pair = begin(A, (p + 1) / (2 * frobenius_norm(A)), p);
  double error = distance_from_identity(pair.M);
  const double tolerance = method.tolerance.value_or(1e-6);
  for (std::int64_t iteration = 0; !(error <= tolerance) && iteration < method.max_iterations; ++iteration) {
    if (!std::isfinite(error)) break;
    pair.advance(newton_factor(pair.M, p), p);
    error = distance_from_identity(pair.M);
  }
  return pair.X;
}

/// b_i = ∏_{j<i} (1 + j·p)/((j + 1)·p): the binomial series of (1 − x)^(−1/p).
std::vector<double> series(std::int64_t order, int p) {
  std::vector<double> b{1};
  for (std::int64_t i = 1; i < order; ++i)
    b.push_back(b.back() * (1 + static_cast<double>(i - 1) * p) / (static_cast<double>(i) * p));
  return b;
}

/// One Newton step, then N = Σ b_i (I − M)^i; ends too when the error grows by a fifth or, below 1e-3, stands still.
template <class Scalar>
Matrix<Scalar> by_series(const Matrix<Scalar>& A, int p, const RootMethod& method) {
  Coupled<Scalar> pair = begin(A, 1 / static_cast<double>(A.trace()), p);
  pair.advance(newton_factor(pair.M, p), p);
  double error = distance_from_identity(pair.M);
  const std::vector<double> b = series(method.order, p);
  const Matrix<Scalar> I = identity<Scalar>(A.rows());
  const double tolerance = method.tolerance.value_or(1e-8);
  for (std::int64_t iteration = 1; !(error <= tolerance) && iteration < method.max_iterations; ++iteration) {
    const Matrix<Scalar> rest = I - pair.M;
    Matrix<Scalar> N = static_cast<Scalar>(b.back()) * rest + static_cast<Scalar>(b[b.size() - 2]) * I;
    for (std::size_t i = b.size() - 2; i-- > 0;) N = Matrix<Scalar>(N * rest) + static_cast<Scalar>(b[i]) * I;
    pair.advance(N, p);
    const double next = distance_from_identity(pair.M);
    if (!(next <= 1.2 * error) || (next == error && error < 1e-3)) break;
    error = next;
  }
  return pair.X;
}

/// Whether X^p·A is near I: iterations that diverged leave it far away.
template <class Scalar>
bool is_root(const Matrix<Scalar>& X, const Matrix<Scalar>& A, int p) {
  constexpr double kFar = 0.1;
  return distance_from_identity(Matrix<Scalar>(A * power(X, p))) <= kFar;
}

}  // namespace

RootMethod::Kind root_method(const std::string& name) {
  if (name == "eigen") return RootMethod::Kind::eigen;
  if (name == "coupled_newton") return RootMethod::Kind::coupled_newton;
  if (name == "coupled_higher_order") return RootMethod::Kind::coupled_higher_order;
  throw InputError("", "root_method", "'" + name + "'", "eigen, coupled_newton, coupled_higher_order");
}

bool is_coupled_root(double root) {
  return root > 0.5 && root < 1e6 && std::abs(root - std::round(root)) < 1e-6 * root;
}

template <class Scalar>
std::optional<Matrix<Scalar>> inverse_root(const Matrix<Scalar>& A, double root, double epsilon,
                                           const RootMethod& method) {
  if (!A.allFinite()) return std::nullopt;
  if (method.kind == RootMethod::Kind::eigen) {
    auto result = by_eigenvalues(A, root, epsilon);
    return result && result->allFinite() ? result : std::nullopt;
  }
  const int p = static_cast<int>(std::lround(root));
  if (!is_coupled_root(root))
    throw InputError("", "the root of a coupled iteration", fmt::format("{:g}", root), "an integer from 1");
  const bool newton = method.kind == RootMethod::Kind::coupled_newton;
  const double largest_row = static_cast<double>(A.cwiseAbs().rowwise().sum().maxCoeff());
  const Matrix<Scalar> ridged = with_ridge(A, newton ? epsilon : std::max(epsilon, method.rel_epsilon * largest_row));
  const Matrix<Scalar> result = newton ? by_newton(ridged, p, method) : by_series(ridged, p, method);
  // Newton's iterate is what it is; a series that went astray is no root.
  return result.allFinite() && (newton || is_root(result, ridged, p)) ? std::optional(result) : std::nullopt;
}

template std::optional<Matrix<float>> inverse_root(const Matrix<float>&, double, double, const RootMethod&);
template std::optional<Matrix<double>> inverse_root(const Matrix<double>&, double, double, const RootMethod&);

}  // namespace canzona::reference
