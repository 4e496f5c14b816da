#include "reference/optimizers/inverse_root.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/core/error.hpp"
#include "reference/core/random.hpp"
#include "reference/optimizers/eigh.hpp"

namespace canzona::reference {
namespace {

using Kind = RootMethod::Kind;

Matrix<double> diagonal(const std::vector<double>& values) {
  Matrix<double> matrix =
      Matrix<double>::Zero(static_cast<Eigen::Index>(values.size()), static_cast<Eigen::Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    matrix(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(i)) = values[i];
  return matrix;
}

/// BBᵀ + I of a random B.
Matrix<double> positive(int size) {
  Matrix<double> B(size, size);
  for (std::int64_t i = 0; i < B.size(); ++i) B.data()[i] = random_normal(random_key({3}), i);
  return B * B.transpose() + Matrix<double>::Identity(size, size);
}

TEST(InverseRoot, OfADiagonalByHand) {
  const Matrix<double> expected = diagonal({0.5, 1, 1 / 3.0});
  for (const Kind kind : {Kind::eigen, Kind::coupled_newton, Kind::coupled_higher_order}) {
    const auto root = inverse_root(diagonal({16, 1, 81}), 4, 0, {.kind = kind, .tolerance = 1e-12});
    ASSERT_TRUE(root.has_value());
    EXPECT_LT((*root - expected).norm(), 1e-10) << static_cast<int>(kind);
  }
}

TEST(InverseRoot, RaisedToItsPowerInvertsTheMatrix) {
  const Matrix<double> A = positive(9);
  for (const Kind kind : {Kind::eigen, Kind::coupled_newton, Kind::coupled_higher_order}) {
    for (const int p : {1, 2, 3, 4}) {
      for (const int order : {2, 3, 5}) {
        const auto X = inverse_root(A, p, 0, {.kind = kind, .tolerance = 1e-10, .order = order});
        ASSERT_TRUE(X.has_value());
        Matrix<double> product = A;
        for (int i = 0; i < p; ++i) product = product * *X;
        EXPECT_LT((product - Matrix<double>::Identity(9, 9)).norm(), 1e-8) << static_cast<int>(kind) << ' ' << p;
      }
    }
  }
}

TEST(InverseRoot, EpsilonIsAddedToTheDiagonal) {
  EXPECT_NEAR((*inverse_root(diagonal({15}), 4, 1, {}))(0, 0), 0.5, 1e-15);
  EXPECT_NEAR((*inverse_root(diagonal({0}), 2, 1e-4, {}))(0, 0), 100, 1e-10);
}

TEST(InverseRoot, EigenvaluesBelowEpsilonShiftAllOfThem) {
  // −3 + 1 and 5 + 1: shifted by 3, so that the smallest is 1: 1 and 9.
  const auto root = inverse_root(diagonal({-3, 5}), 2, 1, {});
  EXPECT_LT((*root - diagonal({1, 1 / 3.0})).norm(), 1e-14);
}

TEST(InverseRoot, OfWhatIsNotFiniteIsNothing) {
  Matrix<double> A = positive(4);
  A(2, 1) = std::nan("");
  for (const Kind kind : {Kind::eigen, Kind::coupled_newton, Kind::coupled_higher_order})
    EXPECT_FALSE(inverse_root(A, 4, 1e-12, {.kind = kind}).has_value());
  // 0^(−1/4) is infinite.
  for (const Kind kind : {Kind::eigen, Kind::coupled_newton, Kind::coupled_higher_order})
    EXPECT_FALSE(inverse_root(diagonal({0, 0}), 4, 0, {.kind = kind}).has_value());
}

TEST(InverseRoot, CoupledIterationsNeedAnIntegerRoot) {
  EXPECT_THROW(inverse_root(positive(3), 2.5, 0, {.kind = Kind::coupled_newton}), InputError);
  EXPECT_THROW(root_method("magic"), InputError);
}

// ---- eigh

/// Fails in fp32 and counts its calls in fp64.
struct FailsInFloat {
  int* calls;
  std::optional<Eigenpairs<float>> operator()(const Matrix<float>&) const { return std::nullopt; }
  std::optional<Eigenpairs<double>> operator()(const Matrix<double>& matrix) const {
    ++*calls;
    return SymmetricSolver()(matrix);
  }
};

/// Returns what is not finite.
struct ReturnsNan {
  template <class Scalar>
  std::optional<Eigenpairs<Scalar>> operator()(const Matrix<Scalar>& matrix) const {
    auto pairs = SymmetricSolver()(matrix);
    pairs->vectors(0, 0) = std::numeric_limits<Scalar>::quiet_NaN();
    return pairs;
  }
};

TEST(Eigh, RebuildsTheMatrix) {
  const Matrix<double> A = positive(12);
  const auto pairs = eigh(A);
  ASSERT_TRUE(pairs.has_value());
  const Matrix<double> rebuilt = pairs->vectors * pairs->values.asDiagonal() * pairs->vectors.transpose();
  EXPECT_LT((rebuilt - A).norm(), 1e-12 * A.norm());
}

TEST(Eigh, RetriesInDoubleAfterAFailure) {
  int calls = 0;
  const Matrix<float> A = positive(5).cast<float>();
  const auto pairs = eigh(A, FailsInFloat{&calls});
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(calls, 1);
  EXPECT_LT((pairs->vectors * pairs->values.asDiagonal() * pairs->vectors.transpose() - A).norm(), 1e-5 * A.norm());
}

TEST(Eigh, ChecksForFinitenessBeforeAndAfter) {
  int calls = 0;
  Matrix<float> A = positive(5).cast<float>();
  EXPECT_FALSE(eigh(A, ReturnsNan()).has_value());
  A(0, 0) = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(eigh(A, FailsInFloat{&calls}).has_value());
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace canzona::reference
