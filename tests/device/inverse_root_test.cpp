// Inverse roots of the engine against the reference's.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "optimized/optimizers/inverse_root.hpp"
#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using reference::RootMethod;
using testing_support::random_matrix;

using Root = std::optional<Matrix<float>>;

/// (A/divisor + εI)^(−1/root)
struct Problem {
  Matrix<float> A;
  double root;
  double epsilon;
  RootMethod method;

  Root by_reference() const { return reference::inverse_root(A, root, epsilon, method); }

  Root by_engine(float divisor = 1) const {
    device_under_test::OnDevice own;
    Workspace workspace(*own.device);
    const std::int64_t n = A.rows();
    const InverseRoot<float> inverse_root(*own.device, workspace, 2, n + 3, root, epsilon, method);
    const MatrixOut found{own.zeros<float>(n * n), n, n};
    const auto failed = own.zeros<std::int32_t>(1);
    inverse_root.compute(*own.stream, in(own.put(A)), divisor, found, failed);
    const Matrix<float> X = own.get(found);
    if (own.get(failed) == 0) return X;
    EXPECT_EQ(X, (Matrix<float>::Zero(n, n))) << "a root that failed was written";
    return std::nullopt;
  }

  /// √n times the response of the reference to noise of one unit in the last place of A, as in
  /// preconditioners_test.cpp.
  double derived_bound() const {
    constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
    const Root undisturbed = by_reference();
    double response = kEpsilon;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Problem noisy = *this;
      for (std::int64_t i = 0; i < A.rows(); ++i) {
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto unit =
              static_cast<float>(mix_bits(random_key({seed}) + static_cast<std::uint64_t>(i * 999 + j)) % 3);
          noisy.A(i, j) = noisy.A(j, i) = A(i, j) * (1 + kEpsilon * (unit - 1));
        }
      }
      const Root disturbed = noisy.by_reference();
      response = std::max<double>(response, (*disturbed - *undisturbed).norm() / undisturbed->norm());
    }
    return std::sqrt(static_cast<double>(A.rows())) * response;
  }

  void expect_equal(const std::string& what) const {
    const Root expected = by_reference(), got = by_engine();
    ASSERT_TRUE(expected.has_value()) << what;
    ASSERT_TRUE(got.has_value()) << what;
    const double bound = derived_bound();
    EXPECT_LT(bound, 1e-2) << what << ": determines nothing";
    EXPECT_LE((*got - *expected).norm() / expected->norm(), bound) << what;
    // A power of two only moves exponents.
    EXPECT_EQ((Problem{4 * A, root, epsilon, method}.by_engine(4)), got) << what;
  }
};

/// G·Gᵀ/columns of a G twice as wide as high: full rank, condition near 34.
Matrix<float> factor_of(int n) {
  const Matrix<float> G = random_matrix<float>(n, 2 * n, static_cast<std::uint64_t>(n));
  return G * G.transpose() / static_cast<float>(2 * n);
}

TEST(EngineInverseRoot, EqualsTheReferenceByEveryMethod) {
  for (const int n : {1, 2, 17, 33}) {
    for (const double root : {1.0, 2.0, 3.0, 4.0, 7.0}) {
      for (const auto kind :
           {RootMethod::Kind::eigen, RootMethod::Kind::coupled_newton, RootMethod::Kind::coupled_higher_order}) {
        const std::string what = fmt::format("n {} root {} method {}", n, root, static_cast<int>(kind));
        Problem{factor_of(n), root, 1e-3, {.kind = kind, .tolerance = 1e-4}}.expect_equal(what);
        Problem{factor_of(n), root, 1e-3, {.kind = kind, .tolerance = 1e-4, .order = 6}}.expect_equal(what);
      }
    }
  }
}

TEST(EngineInverseRoot, StopsWhereTheReferenceStops) {
  // Far from converged, one iteration more or less is another matrix.
  for (const auto kind : {RootMethod::Kind::coupled_newton, RootMethod::Kind::coupled_higher_order}) {
    int roots = 0;
    for (std::int64_t iterations = 1; iterations < 12; ++iterations) {
      const Problem problem{factor_of(9), 4, 1e-3, {.kind = kind, .max_iterations = iterations, .tolerance = 1e-5}};
      if (!problem.by_reference()) {
        EXPECT_FALSE(problem.by_engine()) << iterations;
        continue;
      }
      problem.expect_equal(fmt::format("iterations {}", iterations));
      ++roots;
    }
    EXPECT_GT(roots, 1);
  }
}

TEST(EngineInverseRoot, ShiftsEigenvaluesBelowEpsilon) {
  Matrix<float> A = factor_of(6);
  A.diagonal().array() -= 1.5f;  // indefinite
  Problem{A, 4, 0.125, {}}.expect_equal("indefinite");
}

TEST(EngineInverseRoot, OfWhatIsNotFiniteThereIsNone) {
  for (const auto kind :
       {RootMethod::Kind::eigen, RootMethod::Kind::coupled_newton, RootMethod::Kind::coupled_higher_order}) {
    for (const float spoilt : {NAN, INFINITY}) {
      Problem problem{factor_of(5), 4, 1e-3, {.kind = kind}};
      problem.A(3, 3) = spoilt;
      EXPECT_FALSE(problem.by_engine().has_value());
    }
    // Without epsilon zero has no inverse.
    EXPECT_FALSE((Problem{Matrix<float>::Zero(3, 3), 4, 0, {.kind = kind}}.by_engine().has_value()));
  }
}

}  // namespace
}  // namespace canzona::optimized
