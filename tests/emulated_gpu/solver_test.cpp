// cuSOLVER's factorizations by their residuals.
#include <cusolverDn.h>

#include <Eigen/Dense>
#include <algorithm>
#include <limits>

#include "tests/emulated_gpu/test_support.hpp"

namespace canzona::emulated_gpu {
namespace {

using Eigen::MatrixXd;
using Eigen::MatrixXf;

class Solver : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    stream_ = std::make_unique<TestStream>();
    EXPECT_EQ(cusolverDnCreate(&handle_), CUSOLVER_STATUS_SUCCESS);
    EXPECT_EQ(cusolverDnSetStream(handle_, *stream_), CUSOLVER_STATUS_SUCCESS);
    info_ = device_array<int>(1);
  }
  void TearDown() override {
    cusolverDnDestroy(handle_);
    stream_.reset();
    EmulatedGpu::TearDown();
  }

  template <class Matrix>
  typename Matrix::Scalar* put(const Matrix& matrix) {
    return upload(std::vector<typename Matrix::Scalar>(matrix.data(), matrix.data() + matrix.size()), *stream_);
  }
  template <class Scalar>
  Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic> get(const Scalar* data, Eigen::Index rows,
                                                            Eigen::Index columns) {
    const std::vector<Scalar> values = fetch(data, static_cast<std::size_t>(rows * columns), *stream_);
    return Eigen::Map<const Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>>(values.data(), rows, columns);
  }
  int info() { return fetch(info_, 1, *stream_)[0]; }

  std::unique_ptr<TestStream> stream_;
  cusolverDnHandle_t handle_ = nullptr;
  int* info_ = nullptr;
};

constexpr int kSize = 12;
constexpr auto kVectors = CUSOLVER_EIG_MODE_VECTOR;

MatrixXf symmetric() {
  const MatrixXf half = MatrixXf::Random(kSize, kSize);
  return half + half.transpose();
}

TEST_F(Solver, SyevdReadsOneTriangle) {
  for (const auto triangle : {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER}) {
    const MatrixXf full = symmetric();
    MatrixXf half = full;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (triangle == CUBLAS_FILL_MODE_LOWER) {
      half.triangularView<Eigen::StrictlyUpper>().setConstant(nan);
    } else {
      half.triangularView<Eigen::StrictlyLower>().setConstant(nan);
    }
    float* a = put(half);
    auto* values = device_array<float>(kSize);
    int size = 0;
    ASSERT_EQ(cusolverDnSsyevd_bufferSize(handle_, kVectors, triangle, kSize, a, kSize, values, &size),
              CUSOLVER_STATUS_SUCCESS);
    auto* work = device_array<float>(static_cast<std::size_t>(size));
    ASSERT_EQ(cusolverDnSsyevd(handle_, kVectors, triangle, kSize, a, kSize, values, work, size, info_),
              CUSOLVER_STATUS_SUCCESS);
    EXPECT_EQ(info(), 0);
    const MatrixXf v = get(a, kSize, kSize);
    const Eigen::VectorXf w = get(values, kSize, 1);
    EXPECT_TRUE(std::is_sorted(w.begin(), w.end()));
    EXPECT_LT((full * v - v * w.asDiagonal()).norm(), 1e-5F * full.norm());
    EXPECT_LT((v.transpose() * v - MatrixXf::Identity(kSize, kSize)).norm(), 1e-5F);
  }
}

TEST_F(Solver, SyevdTakesDoublesAndALeadingDimension) {
  constexpr int kLeading = kSize + 3;
  const MatrixXd full = symmetric().cast<double>();
  MatrixXd padded = MatrixXd::Constant(kLeading, kSize, 5);
  padded.topRows(kSize) = full;
  double* a = put(padded);
  auto* values = device_array<double>(kSize);
  int size = 0;
  cusolverDnDsyevd_bufferSize(handle_, kVectors, CUBLAS_FILL_MODE_LOWER, kSize, a, kLeading, values, &size);
  auto* work = device_array<double>(static_cast<std::size_t>(size));
  ASSERT_EQ(cusolverDnDsyevd(handle_, kVectors, CUBLAS_FILL_MODE_LOWER, kSize, a, kLeading, values, work, size, info_),
            CUSOLVER_STATUS_SUCCESS);
  const MatrixXd after = get(a, kLeading, kSize);
  const MatrixXd v = after.topRows(kSize);
  const Eigen::VectorXd w = get(values, kSize, 1);
  EXPECT_LT((full * v - v * w.asDiagonal()).norm(), 1e-12 * full.norm());
  EXPECT_TRUE((after.bottomRows(3).array() == 5).all());
}

TEST_F(Solver, SyevdReportsWhatIsNotFiniteOrPlanted) {
  for (const bool planted : {false, true}) {
    MatrixXf matrix = symmetric();
    if (planted) {
      fail_next_factorization();
    } else {
      matrix(3, 2) = std::numeric_limits<float>::infinity();
    }
    float* a = put(matrix);
    auto* values = device_array<float>(kSize);
    int size = 0;
    cusolverDnSsyevd_bufferSize(handle_, kVectors, CUBLAS_FILL_MODE_LOWER, kSize, a, kSize, values, &size);
    auto* work = device_array<float>(static_cast<std::size_t>(size));
    EXPECT_EQ(cusolverDnSsyevd(handle_, kVectors, CUBLAS_FILL_MODE_LOWER, kSize, a, kSize, values, work, size, info_),
              CUSOLVER_STATUS_SUCCESS);
    EXPECT_EQ(info(), 1);
    EXPECT_TRUE(get(a, kSize, kSize).array().isNaN().all());
    EXPECT_TRUE(get(values, kSize, 1).array().isNaN().all());
  }
}

TEST_F(Solver, GeqrfAndOrgqrGiveQAndR) {
  for (const auto& [rows, columns] : {std::pair(12, 12), std::pair(12, 5), std::pair(1, 1)}) {
    const MatrixXf matrix = MatrixXf::Random(rows, columns);
    float* a = put(matrix);
    auto* tau = device_array<float>(static_cast<std::size_t>(columns));
    int size = 0, size_of_q = 0;
    ASSERT_EQ(cusolverDnSgeqrf_bufferSize(handle_, rows, columns, a, rows, &size), CUSOLVER_STATUS_SUCCESS);
    ASSERT_EQ(cusolverDnSorgqr_bufferSize(handle_, rows, columns, columns, a, rows, tau, &size_of_q),
              CUSOLVER_STATUS_SUCCESS);
    size = std::max(size, size_of_q);
    auto* work = device_array<float>(static_cast<std::size_t>(size));
    ASSERT_EQ(cusolverDnSgeqrf(handle_, rows, columns, a, rows, tau, work, size, info_), CUSOLVER_STATUS_SUCCESS);
    EXPECT_EQ(info(), 0);
    const MatrixXf r = get(a, rows, columns).topRows(columns).triangularView<Eigen::Upper>();
    ASSERT_EQ(cusolverDnSorgqr(handle_, rows, columns, columns, a, rows, tau, work, size, info_),
              CUSOLVER_STATUS_SUCCESS);
    EXPECT_EQ(info(), 0);
    const MatrixXf q = get(a, rows, columns);
    EXPECT_LT((q * r - matrix).norm(), 1e-5F * matrix.norm());
    EXPECT_LT((q.transpose() * q - MatrixXf::Identity(columns, columns)).norm(), 1e-5F);
  }
}

TEST_F(Solver, GeqrfStoresReflectorsAsLapackDoes) {
  // (3, 4) becomes (-5, 0): v = (1, 1/2), tau = 8/5, of I - tau v v^T.
  float* a = upload<float>({3, 4}, *stream_);
  auto* tau = device_array<float>(1);
  int size = 0;
  cusolverDnSgeqrf_bufferSize(handle_, 2, 1, a, 2, &size);
  auto* work = device_array<float>(static_cast<std::size_t>(size));
  cusolverDnSgeqrf(handle_, 2, 1, a, 2, tau, work, size, info_);
  EXPECT_FLOAT_EQ(get(a, 2, 1)(0), -5.0F);
  EXPECT_FLOAT_EQ(get(a, 2, 1)(1), 0.5F);
  EXPECT_FLOAT_EQ(get(tau, 1, 1)(0), 1.6F);
}

TEST_F(Solver, GeqrfFailsWherePlanted) {
  float* a = upload<float>({3, 4}, *stream_);
  auto* tau = device_array<float>(1);
  int size = 0;
  cusolverDnSgeqrf_bufferSize(handle_, 2, 1, a, 2, &size);
  auto* work = device_array<float>(static_cast<std::size_t>(size));
  fail_next_factorization();
  cusolverDnSgeqrf(handle_, 2, 1, a, 2, tau, work, size, info_);
  EXPECT_EQ(info(), 1);
  EXPECT_TRUE(get(a, 2, 1).array().isNaN().all());
  EXPECT_EQ(cusolverDnSgeqrf(handle_, 2, 1, a, 2, tau, work, size - 1, info_), CUSOLVER_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace canzona::emulated_gpu
