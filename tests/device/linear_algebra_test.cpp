// Products and factorizations of a device against Eigen, on sizes around blocks and vector lengths.
#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using device_under_test::OnDevice;
using testing_support::random_matrix;

class DeviceAlgebra : public ::testing::Test, protected OnDevice {
 protected:
  /// Within the bound of a sum of k products in floating point, k·ε·Σ|aᵢbᵢ| (and alike for what is added to it):
  /// `sizes` holds those sums of absolute values.
  static void expect_product(const Matrix<float>& got, const Matrix<double>& expected, const Matrix<double>& sizes,
                             int k) {
    const double bound = (k + 2) * static_cast<double>(std::numeric_limits<float>::epsilon());
    EXPECT_TRUE(((got.cast<double>() - expected).array().abs() <= bound * sizes.array()).all());
  }
  /// A residual within LAPACK's own test threshold: 50·n·ε of the matrix (TESTING/sep.in; svd and QR ask for less).
  template <class T>
  static void expect_residual(const Matrix<T>& residual, const Matrix<T>& of) {
    const double bound = 50.0 * static_cast<double>(of.rows()) * std::numeric_limits<T>::epsilon();
    EXPECT_LE(residual.norm(), bound * of.norm());
  }

  explicit DeviceAlgebra(int threads = 1) : OnDevice(threads) {}
};

/// The same by several threads. The largest sizes are shared by as many as there are.
class DeviceAlgebraOfThreads : public DeviceAlgebra, public ::testing::WithParamInterface<int> {
 protected:
  DeviceAlgebraOfThreads() : DeviceAlgebra(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Threads, DeviceAlgebraOfThreads, ::testing::ValuesIn(device_under_test::thread_counts()));

TEST_P(DeviceAlgebraOfThreads, ProductsInAllTranspositions) {
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

TEST_P(DeviceAlgebraOfThreads, SymmetricProductsAreWholeAndExactlySymmetric) {
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

TEST(DeviceAlgebraStacks, AreEveryMatrixAloneWithinTheBoundOfASum) {
  for (const int threads : device_under_test::thread_counts()) {
    for (const std::int64_t count : {1, 2, 5}) {
      for (const std::int64_t n : {1, 7, 33, 300, 470}) {
        if (count == 5 && n == 470) continue;
        OnDevice own_device(threads);
        Stream& stream = *own_device.stream;
        LinearAlgebra& algebra = own_device.algebra;
        Matrix<float> A(count * n, n);
        for (std::int64_t index = 0; index < count; ++index) {
          const Matrix<float> S = random_matrix<float>(n, n, static_cast<std::uint64_t>(index));
          A.middleRows(index * n, n) = S + Matrix<float>(S.transpose());
        }
        const auto out = [&] { return MatrixOut{own_device.zeros<float>(A.size()), n, n}; };
        const MatrixOut product = out(), square = out(), polynomial = out();
        const MatrixOut commuting{own_device.put(A).data, n, n};
        const MatrixIn first{own_device.put(A).data, n, n};
        algebra.products(stream, 2, first, Transpose::no, first, Transpose::no, 0, product, count);
        algebra.symmetric_products(stream, 2, first, Transpose::no, 0, square, count);
        algebra.commuting_products(stream, first, first, -3, commuting, count);
        algebra.quadratics(stream, -2, 0.5f, first, polynomial, count);
        const double bound = static_cast<double>(n + 2) * std::numeric_limits<float>::epsilon();
        for (std::int64_t index = 0; index < count; ++index) {
          const auto of = [&](const MatrixOut& stack) {
            return Matrix<double>(own_device.get(MatrixOut{stack.data + index * n * n, n, n}).cast<double>());
          };
          const Matrix<double> own = A.middleRows(index * n, n).cast<double>();
          const Matrix<double> squared = own * own, sizes = own.cwiseAbs() * own.cwiseAbs();
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

/// In float and in double.
template <class Test>
void in_both(const Test& test) {
  test(float{});
  test(double{});
}

TEST_F(DeviceAlgebra, EighRebuildsTheMatrixWithAscendingValues) {
  in_both([&]<class T>(T) {
    for (const int n : {1, 2, 17, 64}) {
      const Matrix<T> S = random_matrix<T>(n, n, 4);
      const Matrix<T> A = S * S.transpose();
      const MatrixView<T> V = put(A), values{zeros<T>(n), n, 1};
      const auto found = zeros<std::int32_t>(1);
      algebra.factorizations<T>().eigh(*stream, V, values.data, found, work<T>(n));
      const Matrix<T> vectors = get(V), lambda = get(values);
      EXPECT_EQ(get(found), 1);
      for (int i = 1; i < n; ++i) EXPECT_LE(lambda(i - 1, 0), lambda(i, 0));
      expect_residual<T>(vectors * lambda.col(0).asDiagonal() * vectors.transpose() - A, A);
    }
  });
}

TEST_F(DeviceAlgebra, QrLeavesAnOrthogonalBasisOfTheColumns) {
  in_both([&]<class T>(T) {
    for (const int n : {1, 2, 17, 64}) {
      const Matrix<T> A = random_matrix<T>(n, n, 5);
      const MatrixView<T> view = put(A);
      algebra.factorizations<T>().qr(*stream, view, work<T>(n));
      const Matrix<T> Q = get(view);
      const Matrix<T> identity = Matrix<T>::Identity(n, n);
      expect_residual<T>(Q.transpose() * Q - identity, identity);
      // QᵀA is upper triangular.
      const Matrix<T> R = Q.transpose() * A;
      expect_residual<T>(R.template triangularView<Eigen::StrictlyLower>(), A);
    }
  });
}

TEST_F(DeviceAlgebra, EighOfWhatIsNotFiniteIsNotFound) {
  in_both([&]<class T>(T) {
    for (const T spoilt : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
      Matrix<T> A = Matrix<T>::Identity(5, 5);
      A(2, 2) = spoilt;
      const auto found = zeros<std::int32_t>(1);
      algebra.factorizations<T>().eigh(*stream, put(A), zeros<T>(5), found, work<T>(5));
      EXPECT_EQ(get(found), 0);
    }
  });
}

}  // namespace
}  // namespace canzona::optimized
