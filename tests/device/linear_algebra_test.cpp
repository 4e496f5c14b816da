// Products and factorizations of the host device against Eigen, on sizes around blocks and vector lengths.
#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "optimized/device/launch.hpp"
#include "optimized/host/factorizations.hpp"
#include "optimized/host/host_device.hpp"
#include "reference/core/error.hpp"
#include "reference/core/matrix.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;

class HostAlgebra : public ::testing::Test {
 protected:
  MatrixOut put(const Matrix<float>& matrix) {
    buffers.push_back(device->allocate_elements<float>(matrix.size()));
    device->copy(*stream, matrix.data(), buffers.back().as<float>().raw(), sizeof(float) * matrix.size());
    stream->synchronize();
    return {buffers.back().as<float>(), matrix.rows(), matrix.cols()};
  }
  DevicePointer<std::byte> work(std::int64_t n) {
    buffers.push_back(device->allocate(static_cast<std::size_t>(algebra.factorization_bytes(n))));
    return buffers.back().as<std::byte>();
  }
  Matrix<float> get(const MatrixOut& view) {
    Matrix<float> matrix(view.rows, view.cols);
    device->copy(*stream, view.data.raw(), matrix.data(), sizeof(float) * matrix.size());
    stream->synchronize();
    return matrix;
  }
  /// Within the bound of a sum of k products in floating point, k·ε·Σ|aᵢbᵢ| (and alike for what is added to it):
  /// `sizes` holds those sums of absolute values.
  static void expect_product(const Matrix<float>& got, const Matrix<double>& expected, const Matrix<double>& sizes,
                             int k) {
    const double bound = (k + 2) * static_cast<double>(std::numeric_limits<float>::epsilon());
    EXPECT_TRUE(((got.cast<double>() - expected).array().abs() <= bound * sizes.array()).all());
  }
  /// A residual within LAPACK's own test threshold: 50·n·ε of the matrix (TESTING/sep.in; svd and QR ask for less).
  static void expect_residual(const Matrix<float>& residual, const Matrix<float>& of) {
    const double bound = 50.0 * static_cast<double>(of.rows()) * std::numeric_limits<float>::epsilon();
    EXPECT_LE(residual.norm(), bound * of.norm());
  }

  explicit HostAlgebra(int threads = 1) : device(make_host_device(threads)) {}

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream = device->make_stream();
  LinearAlgebra& algebra = device->linear_algebra();
  std::vector<Buffer> buffers;
};

/// The same by several threads. The largest sizes are shared by as many as there are.
class HostAlgebraOfThreads : public HostAlgebra, public ::testing::WithParamInterface<int> {
 protected:
  HostAlgebraOfThreads() : HostAlgebra(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Threads, HostAlgebraOfThreads, ::testing::Values(1, 2, 3));

TEST_P(HostAlgebraOfThreads, ProductsInAllTranspositions) {
  for (const auto& [m, n, k] : std::vector<std::array<int, 3>>{
           {1, 1, 1}, {3, 5, 7}, {33, 31, 65}, {128, 17, 64}, {471, 333, 350}, {301, 470, 370}}) {
    const Matrix<float> C = random_matrix<float>(m, n, 3);
    for (const Transpose a : {Transpose::no, Transpose::yes}) {
      for (const Transpose b : {Transpose::no, Transpose::yes}) {
        const Matrix<float> A = a == Transpose::no ? random_matrix<float>(m, k, 1) : random_matrix<float>(k, m, 1);
        const Matrix<float> B = b == Transpose::no ? random_matrix<float>(k, n, 2) : random_matrix<float>(n, k, 2);
        const MatrixOut result = put(C);
        algebra.product(*stream, 2, in(put(A)), a, in(put(B)), b, -1, result);
        const Matrix<double> left = (a == Transpose::no ? A : Matrix<float>(A.transpose())).cast<double>();
        const Matrix<double> right = (b == Transpose::no ? B : Matrix<float>(B.transpose())).cast<double>();
        const Matrix<double> sizes = 2 * left.cwiseAbs() * right.cwiseAbs() + C.cast<double>().cwiseAbs();
        expect_product(get(result), 2 * left * right - C.cast<double>(), sizes, k);
      }
    }
  }
}

TEST_P(HostAlgebraOfThreads, SymmetricProductsAreWholeAndExactlySymmetric) {
  for (const auto& [m, k] : std::vector<std::pair<int, int>>{{1, 9}, {31, 7}, {33, 64}, {100, 100}, {517, 400}}) {
    const Matrix<float> A = random_matrix<float>(m, k, 1);
    const Matrix<float> S = random_matrix<float>(m, m, 2);
    const Matrix<float> C = S + Matrix<float>(S.transpose());
    for (const Transpose a : {Transpose::no, Transpose::yes}) {
      const MatrixOut result = put(C);
      algebra.symmetric_product(*stream, 3, in(put(a == Transpose::no ? A : Matrix<float>(A.transpose()))), a, 0.5f,
                                result);
      const Matrix<float> got = get(result);
      const Matrix<double> exact = A.cast<double>();
      const Matrix<double> sizes =
          3 * exact.cwiseAbs() * exact.cwiseAbs().transpose() + 0.5 * C.cast<double>().cwiseAbs();
      expect_product(got, 3 * exact * exact.transpose() + 0.5 * C.cast<double>(), sizes, k);
      EXPECT_EQ(got, Matrix<float>(got.transpose()));
    }
  }
}

TEST(HostAlgebraStacks, AreEveryMatrixAloneWithinTheBoundOfASum) {
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t count : {1, 2, 5}) {
      for (const std::int64_t n : {1, 7, 33, 300, 470}) {
        if (count == 5 && n == 470) continue;
        const auto device = make_host_device(threads);
        const auto stream = device->make_stream();
        LinearAlgebra& algebra = device->linear_algebra();
        Matrix<float> A(count * n, n), product = A, square = A, commuting = A, polynomial = A;
        for (std::int64_t index = 0; index < count; ++index) {
          const Matrix<float> S = random_matrix<float>(n, n, static_cast<std::uint64_t>(index));
          A.middleRows(index * n, n) = S + Matrix<float>(S.transpose());
        }
        commuting = A;
        const auto view = [n](Matrix<float>& matrix) { return MatrixOut{DevicePointer<float>(matrix.data()), n, n}; };
        const MatrixIn in_ = in(view(A));
        algebra.products(*stream, 2, in_, Transpose::no, in_, Transpose::no, 0, view(product), count);
        algebra.symmetric_products(*stream, 2, in_, Transpose::no, 0, view(square), count);
        algebra.commuting_products(*stream, in_, in_, -3, view(commuting), count);
        algebra.quadratics(*stream, -2, 0.5f, in_, view(polynomial), count);
        stream->synchronize();
        const double bound = static_cast<double>(n + 2) * std::numeric_limits<float>::epsilon();
        for (std::int64_t index = 0; index < count; ++index) {
          const auto of = [&](const Matrix<float>& stack) {
            return Matrix<double>(stack.middleRows(index * n, n).cast<double>());
          };
          const Matrix<double> own = of(A), squared = own * own, sizes = own.cwiseAbs() * own.cwiseAbs();
          const auto expect_near = [&](const Matrix<double>& got, const Matrix<double>& expected,
                                       const Matrix<double>& size) {
            EXPECT_TRUE(((got - expected).array().abs() <= bound * size.array()).all()) << n << ' ' << count;
          };
          expect_near(of(product), 2 * squared, 2 * sizes);
          expect_near(of(square), 2 * squared, 2 * sizes);
          expect_near(of(commuting), squared - 3 * own, sizes + 3 * own.cwiseAbs());
          expect_near(of(polynomial), 0.5 * squared - 2 * own, 2 * own.cwiseAbs() + 0.5 * sizes);
          for (const Matrix<double>& symmetric : {of(square), of(commuting), of(polynomial)})
            EXPECT_EQ(symmetric, Matrix<double>(symmetric.transpose()));
        }
      }
    }
  }
}

TEST_F(HostAlgebra, EighRebuildsTheMatrixWithAscendingValues) {
  for (const int n : {1, 2, 17, 64}) {
    const Matrix<float> S = random_matrix<float>(n, n, 4);
    const Matrix<float> A = S * S.transpose();
    const MatrixOut V = put(A);
    const Buffer values = device->allocate_elements<float>(n);
    const Buffer found = device->allocate_elements<std::int32_t>(1);
    algebra.eigh(*stream, V, values.as<float>(), found.as<std::int32_t>(), work(n));
    const Matrix<float> vectors = get(V);
    EXPECT_EQ(*found.as<std::int32_t>().raw(), 1);
    const Eigen::Map<const Eigen::VectorXf> lambda(values.as<float>().raw(), n);
    for (int i = 1; i < n; ++i) EXPECT_LE(lambda[i - 1], lambda[i]);
    expect_residual(vectors * lambda.asDiagonal() * vectors.transpose() - A, A);
  }
}

TEST_F(HostAlgebra, QrLeavesAnOrthogonalBasisOfTheColumns) {
  for (const int n : {1, 2, 17, 64}) {
    const Matrix<float> A = random_matrix<float>(n, n, 5);
    const MatrixOut view = put(A);
    algebra.qr(*stream, view, work(n));
    const Matrix<float> Q = get(view);
    const Matrix<float> identity = Matrix<float>::Identity(n, n);
    expect_residual(Q.transpose() * Q - identity, identity);
    // QᵀA is upper triangular.
    const Matrix<float> R = Q.transpose() * A;
    expect_residual(R.triangularView<Eigen::StrictlyLower>(), A);
  }
}

/// Solvers that fail, after they have spoilt what they were given.
template <class Scalar>
void failing(const char*, const char*, const int* n, Scalar* a, const int*, Scalar*, Scalar*, const int*, int*,
             const int*, int* info) {
  std::fill(a, a + *n * *n, Scalar{0});
  *info = 1;
}

TEST_F(HostAlgebra, EighIsSolvedAgainInDoubleAfterAFailure) {
  const Matrix<float> S = random_matrix<float>(9, 9, 4);
  const Matrix<float> A = S * S.transpose();
  const MatrixOut once = put(A), twice = put(A), never = put(A);
  std::vector<float> values(9), expected(9);
  EXPECT_TRUE(host_eigh(once.data.raw(), 9, expected.data(), work(9).raw()));
  EXPECT_TRUE(host_eigh(twice.data.raw(), 9, values.data(), work(9).raw(), {failing, lapack_solvers().twice}));
  const Matrix<float> vectors = get(twice);
  const Eigen::Map<const Eigen::VectorXf> lambda(values.data(), 9);
  expect_residual(vectors * lambda.asDiagonal() * vectors.transpose() - A, A);
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(values[i], expected[i], 50 * 9 * 1.2e-7 * A.norm());
  EXPECT_FALSE(host_eigh(never.data.raw(), 9, values.data(), work(9).raw(), {failing, failing}));
}

TEST_F(HostAlgebra, EighOfWhatIsNotFiniteIsNotFound) {
  for (const float spoilt : {NAN, INFINITY}) {
    Matrix<float> A = Matrix<float>::Identity(5, 5);
    A(2, 2) = spoilt;
    const Buffer values = device->allocate_elements<float>(5);
    const Buffer found = device->allocate_elements<std::int32_t>(1);
    algebra.eigh(*stream, put(A), values.as<float>(), found.as<std::int32_t>(), work(5));
    stream->synchronize();
    EXPECT_EQ(*found.as<std::int32_t>().raw(), 0);
  }
  EXPECT_THROW(algebra.factorization_bytes(32767), InputError);
}

TEST_F(HostAlgebra, FindsTheLargestAndNaN) {
  const Buffer largest = device->allocate_elements<double>(1);
  const std::vector<double> list{-3, 2, -7, 1};
  for (const int nan_at : {-1, 0, 2, 3}) {
    launch_maximum(*stream, 4, largest.as<double>(),
                   [&](std::int64_t i) { return i == nan_at ? NAN : list[static_cast<std::size_t>(i)]; });
    stream->synchronize();
    const double got = *largest.as<double>().raw();
    EXPECT_TRUE(nan_at < 0 ? got == 2 : std::isnan(got)) << nan_at;
  }
}

TEST(HostLaunch, MeetsEveryElementOnceWithItsRowOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3}) {
    const auto device = make_host_device(threads);
    const auto stream = device->make_stream();
    for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 5}, {3, 7}, {5, 66007}}) {
      std::vector<std::int64_t> met(static_cast<std::size_t>(rows * cols)), met_in_rows = met;
      launch(*stream, rows * cols, [data = met.data()](std::int64_t i) { data[i] += i; });
      launch_rows(*stream, rows, cols,
                  [data = met_in_rows.data()](std::int64_t row, std::int64_t i) { data[i] += 1000000 * row + i; });
      stream->synchronize();
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        ASSERT_EQ(met[static_cast<std::size_t>(i)], i);
        ASSERT_EQ(met_in_rows[static_cast<std::size_t>(i)], 1000000 * (i / cols) + i);
      }
    }
  }
}

TEST(HostLaunch, SumsAreTheSameOnAnyNumberOfThreads) {
  const Matrix<float> values = random_matrix<float>(5, 30011);
  const auto sums_on = [&](int threads) {
    const auto device = make_host_device(threads);
    const auto stream = device->make_stream();
    std::vector<double> sums(5);
    launch_sums(*stream, 5, values.cols(), DevicePointer<double>(sums.data()),
                [data = values.data()](std::int64_t i) { return static_cast<double>(data[i]); });
    stream->synchronize();
    return sums;
  };
  EXPECT_EQ(sums_on(2), sums_on(1));
  EXPECT_EQ(sums_on(3), sums_on(1));
  for (int row = 0; row < 5; ++row)
    EXPECT_NEAR(sums_on(1)[static_cast<std::size_t>(row)], values.row(row).cast<double>().sum(), 1e-9);
}

TEST_F(HostAlgebra, LaunchesEveryElementOnceAndSumsRowsInDouble) {
  for (const std::int64_t count : {0, 1, 7, 8, 9, 1000}) {
    const Buffer counts = device->allocate_elements<float>(count);
    float* data = counts.as<float>().raw();
    launch(*stream, count, [data](std::int64_t i) { data[i] += static_cast<float>(i); });
    const Buffer sums = device->allocate_elements<double>(3);
    launch_sums(*stream, 3, count, sums.as<double>(), [](std::int64_t i) { return 1e8 + static_cast<double>(i); });
    stream->synchronize();
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(data[i], static_cast<float>(i));
    for (std::int64_t row = 0; row < 3; ++row) {
      double expected = 0;
      for (std::int64_t col = 0; col < count; ++col) expected += 1e8 + static_cast<double>(row * count + col);
      EXPECT_EQ(sums.as<double>().raw()[row], expected);
    }
  }
}

}  // namespace
}  // namespace canzona::optimized
