// The CUDA backend on the emulated GPU: streams, memory and kernels behind the device's interfaces, products and
// factorizations against Eigen. Bounds are those of device/linear_algebra_test.cpp: k·ε·Σ|aᵢbᵢ| of a sum of k products,
// and LAPACK's own test threshold of 50·n·ε for factorizations.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>

#include "optimized/cuda/cuda_device.hpp"
#include "optimized/device/launch.hpp"
#include "reference/core/error.hpp"
#include "reference/core/matrix.hpp"
#include "tests/emulated_gpu/emulated_gpu.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;

class CudaBackend : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(emulated_gpu::complaints().empty()) << emulated_gpu::complaints().front(); }

  MatrixOut put(const Matrix<float>& matrix) {
    buffers.push_back(device.allocate_elements<float>(matrix.size()));
    device.copy(*stream, matrix.data(), buffers.back().as<float>().raw(), sizeof(float) * matrix.size());
    stream->synchronize();
    return {buffers.back().as<float>(), matrix.rows(), matrix.cols()};
  }
  Matrix<float> get(const MatrixOut& view) {
    Matrix<float> matrix(view.rows, view.cols);
    device.copy(*stream, view.data.raw(), matrix.data(), sizeof(float) * matrix.size());
    stream->synchronize();
    return matrix;
  }
  template <class T>
  T read(DevicePointer<T> value) {
    T own{};
    device.copy(*stream, value.raw(), &own, sizeof(T));
    stream->synchronize();
    return own;
  }

  CudaDevice device{0, {}};
  std::unique_ptr<Stream> stream = device.make_stream();
  LinearAlgebra& algebra = device.linear_algebra();
  std::vector<Buffer> buffers;
};

TEST_F(CudaBackend, ProductsInAllTranspositions) {
  for (const auto& [m, n, k] : std::vector<std::array<int, 3>>{{1, 1, 1}, {3, 5, 7}, {33, 31, 65}}) {
    const Matrix<float> C = random_matrix<float>(m, n, 3);
    for (const Transpose a : {Transpose::no, Transpose::yes}) {
      for (const Transpose b : {Transpose::no, Transpose::yes}) {
        const Matrix<float> A = a == Transpose::no ? random_matrix<float>(m, k, 1) : random_matrix<float>(k, m, 1);
        const Matrix<float> B = b == Transpose::no ? random_matrix<float>(k, n, 2) : random_matrix<float>(n, k, 2);
        const MatrixOut result = put(C);
        algebra.product(*stream, 2, in(put(A)), a, in(put(B)), b, -1, result);
        const Matrix<double> left = (a == Transpose::no ? A : Matrix<float>(A.transpose())).cast<double>();
        const Matrix<double> right = (b == Transpose::no ? B : Matrix<float>(B.transpose())).cast<double>();
        const Matrix<double> expected = 2 * left * right - C.cast<double>();
        const Matrix<double> sizes = 2 * left.cwiseAbs() * right.cwiseAbs() + C.cast<double>().cwiseAbs();
        const double bound = (k + 2) * static_cast<double>(std::numeric_limits<float>::epsilon());
        EXPECT_TRUE(((get(result).cast<double>() - expected).array().abs() <= bound * sizes.array()).all());
      }
    }
  }
}

TEST_F(CudaBackend, SymmetricFormsOfStacksAreRightAndExactlySymmetric) {
  for (const std::int64_t count : {1, 3}) {
    for (const std::int64_t n : {1, 7, 33}) {
      Matrix<float> stack(count * n, n);
      for (std::int64_t index = 0; index < count; ++index) {
        const Matrix<float> S = random_matrix<float>(n, n, static_cast<std::uint64_t>(index));
        stack.middleRows(index * n, n) = S + Matrix<float>(S.transpose());
      }
      const MatrixOut whole = put(stack);
      const MatrixIn A{whole.data, n, n};
      const auto out = [&] { return put(Matrix<float>::Zero(count * n, n)); };
      const MatrixOut square = out(), commuting = out(), polynomial = out();
      const auto first = [n](const MatrixOut& all) { return MatrixOut{all.data, n, n}; };
      algebra.symmetric_products(*stream, 2, A, Transpose::no, 0, first(square), count);
      algebra.commuting_products(*stream, A, A, 0, first(commuting), count);
      algebra.quadratics(*stream, -2, 0.5f, A, first(polynomial), count);
      const double bound = static_cast<double>(n + 2) * std::numeric_limits<float>::epsilon();
      for (std::int64_t index = 0; index < count; ++index) {
        const auto of = [&](const MatrixOut& all) {
          return Matrix<double>(get(all).middleRows(index * n, n).cast<double>());
        };
        const Matrix<double> own = of(whole), sizes = own.cwiseAbs() * own.cwiseAbs();
        const auto expect_near = [&](const Matrix<double>& got, const Matrix<double>& expected,
                                     const Matrix<double>& size) {
          EXPECT_TRUE(((got - expected).array().abs() <= bound * size.array()).all()) << n << ' ' << count;
          EXPECT_EQ(got, Matrix<double>(got.transpose()));
        };
        expect_near(of(square), 2 * own * own, 2 * sizes);
        expect_near(of(commuting), own * own, sizes);
        expect_near(of(polynomial), 0.5 * own * own - 2 * own, 2 * own.cwiseAbs() + 0.5 * sizes);
      }
    }
  }
}

TEST_F(CudaBackend, EighRebuildsTheMatrixAlsoAfterAFailureInSinglePrecision) {
  for (const bool fails : {false, true}) {
    for (const std::int64_t n : {1, 5, 24}) {
      const Matrix<float> S = random_matrix<float>(n, n, 4);
      const Matrix<float> A = S + Matrix<float>(S.transpose());
      const MatrixOut V = put(A), values = put(Matrix<float>::Zero(1, n));
      const Buffer found = device.allocate_elements<std::int32_t>(1);
      const Buffer work = device.allocate(static_cast<std::size_t>(algebra.factorization_bytes(n)));
      if (fails) emulated_gpu::fail_next_factorization();
      algebra.eigh(*stream, V, values.data, found.as<std::int32_t>(), work.as<std::byte>());
      EXPECT_EQ(read(found.as<std::int32_t>()), 1);
      const Matrix<float> vectors = get(V), lambda = get(values);
      const Matrix<float> rebuilt = vectors * lambda.row(0).asDiagonal() * vectors.transpose();
      const double bound = 50.0 * static_cast<double>(n) * std::numeric_limits<float>::epsilon();
      EXPECT_LE((rebuilt - A).norm(), bound * A.norm());
      for (std::int64_t i = 1; i < n; ++i) EXPECT_LE(lambda(0, i - 1), lambda(0, i));
    }
  }
}

TEST_F(CudaBackend, EighOfWhatIsNotFiniteIsNotFound) {
  for (const float spoilt : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Matrix<float> A = Matrix<float>::Identity(4, 4);
    A(2, 1) = A(1, 2) = spoilt;
    const MatrixOut V = put(A), values = put(Matrix<float>::Zero(1, 4));
    const Buffer found = device.allocate_elements<std::int32_t>(1);
    const Buffer work = device.allocate(static_cast<std::size_t>(algebra.factorization_bytes(4)));
    algebra.eigh(*stream, V, values.data, found.as<std::int32_t>(), work.as<std::byte>());
    EXPECT_EQ(read(found.as<std::int32_t>()), 0);
  }
}

TEST_F(CudaBackend, QrLeavesAnOrthogonalBasisOfTheColumns) {
  for (const std::int64_t n : {1, 5, 24}) {
    const Matrix<float> A = random_matrix<float>(n, n, 9);
    const MatrixOut Q = put(A);
    const Buffer work = device.allocate(static_cast<std::size_t>(algebra.factorization_bytes(n)));
    algebra.qr(*stream, Q, work.as<std::byte>());
    const Matrix<float> basis = get(Q);
    const double bound = 50.0 * static_cast<double>(n) * std::numeric_limits<float>::epsilon();
    EXPECT_LE((basis.transpose() * basis - Matrix<float>::Identity(n, n)).norm(), bound * std::sqrt(n));
    const Matrix<float> R = basis.transpose() * A;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < i; ++j) EXPECT_LE(std::abs(R(i, j)), bound * A.norm());
    }
  }
}

TEST_F(CudaBackend, ReductionsTakeRowsInChunksAndKeepNaN) {
  struct Value {
    const float* values;
    CANZONA_KERNEL double operator()(std::int64_t i) const { return static_cast<double>(values[i]); }
  };
  for (const auto& [rows, cols] : std::vector<std::pair<int, int>>{{1, 1}, {3, 7}, {2, 100000}, {1, 300001}}) {
    Matrix<float> values(rows, cols);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) values(i, j) = static_cast<float>((i + j) % 5);  // their sums are exact
    }
    const MatrixOut view = put(values);
    const Buffer sums = device.allocate_elements<double>(rows);
    const Buffer most = device.allocate_elements<double>(1);
    launch_sums(*stream, rows, cols, sums.as<double>(), Value{view.data.raw()});
    launch_maximum(*stream, view.size(), most.as<double>(), Value{view.data.raw()});
    for (int i = 0; i < rows; ++i)
      EXPECT_EQ(read(sums.as<double>() + i), values.row(i).cast<double>().sum()) << rows << ' ' << cols;
    EXPECT_EQ(read(most.as<double>()), static_cast<double>(values.maxCoeff()));
    values(rows - 1, cols / 2) = std::numeric_limits<float>::quiet_NaN();
    const MatrixOut spoilt = put(values);
    launch_maximum(*stream, view.size(), most.as<double>(), Value{spoilt.data.raw()});
    EXPECT_TRUE(std::isnan(read(most.as<double>())));
  }
}

TEST_F(CudaBackend, AHostTaskThatThrowsIsToldAndNothingMoreIsDone) {
  bool ran = false;
  stream->run([] { throw Error("broken"); });
  stream->run([&] { ran = true; });
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_FALSE(ran);
}

TEST_F(CudaBackend, MoreMemoryThanThereIsIsAnError) { EXPECT_THROW(device.allocate(std::size_t{1} << 40), Error); }

}  // namespace
}  // namespace canzona::optimized
