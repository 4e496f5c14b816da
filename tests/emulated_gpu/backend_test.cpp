// What the tests in tests/device cannot ask of every device: a solver that fails, and memory that ends.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <limits>

#include "reference/core/error.hpp"
#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using device_under_test::OnDevice;
using testing_support::random_matrix;

/// A complaint of the emulated GPU fails the test that it comes from.
class NoComplaints : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    for (const std::string& complaint : emulated_gpu::complaints()) ADD_FAILURE() << complaint;
  }
};
[[maybe_unused]] const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new NoComplaints);
  return true;
}();

TEST(CudaBackend, EighIsSolvedAgainInDoubleAfterAFailure) {
  for (const std::int64_t n : {1, 5, 24}) {
    OnDevice own;
    const Matrix<float> S = random_matrix<float>(n, n, 4);
    const Matrix<float> A = S + Matrix<float>(S.transpose());
    const MatrixOut V = own.put(A), values{own.zeros<float>(n), 1, n};
    const auto found = own.zeros<std::int32_t>(1);
    emulated_gpu::fail_next_factorization();
    own.algebra.factorizations<float>().eigh(*own.stream, V, values.data, found, own.work<float>(n));
    EXPECT_EQ(own.get(found), 1);
    const Matrix<float> vectors = own.get(V), lambda = own.get(values);
    const Matrix<float> rebuilt = vectors * lambda.row(0).asDiagonal() * vectors.transpose();
    // LAPACK's own test threshold.
    EXPECT_LE((rebuilt - A).norm(), 50.0 * static_cast<double>(n) * std::numeric_limits<float>::epsilon() * A.norm());
    for (std::int64_t i = 1; i < n; ++i) EXPECT_LE(lambda(0, i - 1), lambda(0, i));
  }
}

TEST(CudaBackend, MoreMemoryThanThereIsIsAnError) {
  OnDevice own;
  EXPECT_THROW(own.device->allocate(std::size_t{1} << 40), Error);
}

}  // namespace
}  // namespace canzona::optimized
