// What only the host's factorizations have: solvers that can be exchanged, and LAPACK's limit.
#include "optimized/host/factorizations.hpp"

#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "optimized/host/host_device.hpp"
#include "reference/core/error.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;

/// Solvers that fail, after they have spoilt what they were given.
template <class Scalar>
void failing(const char*, const char*, const int* n, Scalar* a, const int*, Scalar*, Scalar*, const int*, int*,
             const int*, int* info) {
  std::fill(a, a + *n * *n, Scalar{0});
  *info = 1;
}

TEST(HostFactorizations, EighIsSolvedAgainInDoubleAfterAFailure) {
  const Matrix<float> S = random_matrix<float>(9, 9, 4);
  const Matrix<float> A = S * S.transpose();
  Matrix<float> once = A, twice = A, never = A;
  std::vector<float> values(9), expected(9);
  const auto device = make_host_device();
  const Buffer work = device->allocate(static_cast<std::size_t>(host_factorization_bytes<float>(9)));
  std::byte* memory = work.as<std::byte>().raw();
  EXPECT_TRUE(host_eigh(once.data(), 9, expected.data(), memory));
  EXPECT_TRUE(host_eigh(twice.data(), 9, values.data(), memory, {failing, lapack_solvers().twice}));
  const Eigen::Map<const Eigen::VectorXf> lambda(values.data(), 9);
  EXPECT_LE((twice * lambda.asDiagonal() * twice.transpose() - A).norm(), 50 * 9 * 1.2e-7 * A.norm());
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(values[i], expected[i], 50 * 9 * 1.2e-7 * A.norm());
  EXPECT_FALSE(host_eigh(never.data(), 9, values.data(), memory, {failing, failing}));
}

TEST(HostFactorizations, AreRefusedBeyondLapacksSizes) {
  EXPECT_THROW(host_factorization_bytes<float>(32767), InputError);
}

}  // namespace
}  // namespace canzona::optimized
