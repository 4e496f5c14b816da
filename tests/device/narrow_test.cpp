// Two-byte floats, and products in every element type.
#include "optimized/device/narrow.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;

/// Equal bits, or both NaN.
::testing::AssertionResult is_same(float got, float expected) {
  if (std::isnan(got) && std::isnan(expected)) return ::testing::AssertionSuccess();
  if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(expected)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << got << " is not " << expected;
}

template <class T>
void expect_like_the_reference(DType type) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    T own;
    own.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(own);
    ASSERT_TRUE(is_same(static_cast<float>(T(value)), value));
    ASSERT_TRUE(is_same(round_to(type, value), value));
    if (!std::isfinite(value)) continue;
    // Near it and midway to its neighbours, whence ties go to even.
    const float toward = std::nextafter(value, HUGE_VALF), away = std::nextafter(value, -HUGE_VALF);
    T next = own;
    next.bits = static_cast<std::uint16_t>(bits + 1);
    const float middle = value / 2 + static_cast<float>(next) / 2;
    for (const float near :
         {toward, away, middle, std::nextafter(middle, HUGE_VALF), std::nextafter(middle, -HUGE_VALF)})
      ASSERT_TRUE(is_same(static_cast<float>(T(near)), round_to(type, near))) << near;
  }
  for (const float extreme : {65519.9f, 65520.0f, 1e30f, std::numeric_limits<float>::max(), 1e-8f, 2.98e-8f, 1e-40f})
    EXPECT_TRUE(is_same(static_cast<float>(T(extreme)), round_to(type, extreme))) << extreme;
}

TEST(NarrowFloats, RoundAsTheReferenceDoes) {
  expect_like_the_reference<Bf16>(DType::bf16);
  expect_like_the_reference<Fp16>(DType::fp16);
}

/// Half a unit in the last place of T, relative.
template <class T>
double half_unit() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, Fp16>) return 0x1p-11;
  return 0x1p-8;
}

template <class T>
class Products : public ::testing::Test {
 protected:
  LinearAlgebra& algebra() { return own_->algebra; }
  Stream& stream() { return *own_->stream; }
  /// On a device anew, with this way of symmetric products.
  void use(const std::string& symmetric_way) {
    own_.reset();
    own_ = std::make_unique<device_under_test::OnDevice>(2, symmetric_way);
  }
  /// A stack on the device, as the first of its matrices.
  MatrixView<T> put(const Matrix<T>& stack, std::int64_t count) {
    return {own_->put(stack.data(), stack.size()), stack.rows() / count, stack.cols()};
  }
  Matrix<T> get(const MatrixView<T>& first, std::int64_t count) {
    return Eigen::Map<const Matrix<T>>(own_->get(first.data, count * first.size()).data(), first.rows * count,
                                       first.cols);
  }

  static Matrix<T> narrowed(const Matrix<double>& values) {
    return values.unaryExpr([](double value) { return static_cast<T>(static_cast<Wide<T>>(value)); });
  }
  static Matrix<double> widened(const Matrix<T>& values) {
    return values.unaryExpr([](T value) { return static_cast<double>(static_cast<Wide<T>>(value)); });
  }
  static Matrix<T> draw(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
    return narrowed(random_matrix<double>(rows, cols, seed));
  }

  /// |got − expected| ≤ the rounding of a sum of k terms in Wide<T> and one rounding to T.
  void expect_near(const Matrix<T>& got, const Matrix<double>& expected, const Matrix<double>& sizes, std::int64_t k) {
    const double sum = static_cast<double>(k + 2) * half_unit<Wide<T>>() * 2;
    const Matrix<double> error = widened(got) - expected;
    EXPECT_TRUE((error.array().abs() <= sum * sizes.array() + 1.01 * half_unit<T>() * expected.array().abs()).all())
        << error.array().abs().maxCoeff() << " at " << got.rows() << " by " << got.cols() << " by " << k;
  }

 private:
  std::unique_ptr<device_under_test::OnDevice> own_ = std::make_unique<device_under_test::OnDevice>(2);
};

using Types = ::testing::Types<double, float, Bf16, Fp16>;
class TypeNames {
 public:
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, double>  ? "fp64"
           : std::is_same_v<T, float> ? "fp32"
           : std::is_same_v<T, Bf16>  ? "bf16"
                                      : "fp16";
  }
};
TYPED_TEST_SUITE(Products, Types, TypeNames);

TYPED_TEST(Products, AreSumsInTheWideTypeRoundedOnce) {
  MatrixProducts<TypeParam>& algebra = this->algebra().template in<TypeParam>();
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {7, 5, 9}, {33, 130, 300}}) {
    for (const Transpose a : {Transpose::no, Transpose::yes}) {
      for (const Transpose b : {Transpose::no, Transpose::yes}) {
        constexpr std::int64_t kCount = 2;
        const auto A = this->draw(kCount * (a == Transpose::no ? m : k), a == Transpose::no ? k : m, 1);
        const auto B = this->draw(kCount * (b == Transpose::no ? k : n), b == Transpose::no ? n : k, 2);
        const auto C = this->draw(kCount * m, n, 3);
        const auto left = this->put(A, kCount), right = this->put(B, kCount), result = this->put(C, kCount);
        algebra.products(this->stream(), 2, in(left), a, in(right), b, -1, result, kCount);
        const auto got = this->get(result, kCount);
        for (std::int64_t index = 0; index < kCount; ++index) {
          const auto of = [&](const auto& stack) {
            const std::int64_t rows = stack.rows() / kCount;
            return this->widened(stack.middleRows(index * rows, rows));
          };
          const Matrix<double> own = a == Transpose::no ? of(A) : Matrix<double>(of(A).transpose());
          const Matrix<double> other = b == Transpose::no ? of(B) : Matrix<double>(of(B).transpose());
          this->expect_near(got.middleRows(index * m, m), 2 * own * other - of(C),
                            2 * own.cwiseAbs() * other.cwiseAbs() + of(C).cwiseAbs(), k);
        }
      }
    }
  }
}

/// By way, by size of a stack.
std::vector<std::pair<std::string, std::int64_t>> ways_and_counts() {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for (const std::string& way : device_under_test::symmetric_ways()) {
    for (const std::int64_t count : {1, 3}) all.emplace_back(way, count);
  }
  return all;
}

// Around the 128 × 128 tiles of the kernel and its steps of 32; with sides that are multiples of 8, as its copies of 16
// bytes want them, and others.
TYPED_TEST(Products, OfAMatrixWithItselfTransposedAreRightAndExactlySymmetric) {
  for (const auto& [way, count] : ways_and_counts()) {
    this->use(way);
    MatrixProducts<TypeParam>& algebra = this->algebra().template in<TypeParam>();
    for (const auto& [n, k] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {5, 40}, {33, 7}, {128, 32}, {136, 64}, {131, 33}, {264, 72}}) {
      for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
        const bool tall = transpose == Transpose::yes;
        const auto A = this->draw(count * (tall ? k : n), tall ? n : k, 1);
        Matrix<TypeParam> C(count * n, n);
        for (std::int64_t index = 0; index < count; ++index) {
          const Matrix<double> S = random_matrix<double>(n, n, static_cast<std::uint64_t>(index));
          C.middleRows(index * n, n) = this->narrowed(S + S.transpose());
        }
        for (const double beta : {0.0, -0.5}) {
          const auto result = this->put(C, count);
          algebra.symmetric_products(this->stream(), 2, in(this->put(A, count)), transpose,
                                     static_cast<Wide<TypeParam>>(beta), result, count);
          const auto got = this->get(result, count);
          for (std::int64_t index = 0; index < count; ++index) {
            const auto of = [&](const auto& stack) {
              const std::int64_t rows = stack.rows() / count;
              return this->widened(stack.middleRows(index * rows, rows));
            };
            const Matrix<double> own = tall ? Matrix<double>(of(A).transpose()) : of(A);
            this->expect_near(got.middleRows(index * n, n), 2 * own * own.transpose() + beta * of(C),
                              2 * own.cwiseAbs() * own.cwiseAbs().transpose() + std::abs(beta) * of(C).cwiseAbs(), k);
            EXPECT_EQ(of(got), Matrix<double>(of(got).transpose())) << way << ' ' << n << " by " << k;
          }
        }
      }
    }
  }
}

TYPED_TEST(Products, SymmetricFormsAreRightAndExactlySymmetric) {
  for (const auto& [way, count] : ways_and_counts()) {
    this->use(way);
    MatrixProducts<TypeParam>& algebra = this->algebra().template in<TypeParam>();
    for (const std::int64_t n : {1, 7, 33, 150, 264}) {
      Matrix<TypeParam> A(count * n, n);
      for (std::int64_t index = 0; index < count; ++index) {
        const Matrix<double> S = random_matrix<double>(n, n, static_cast<std::uint64_t>(index));
        A.middleRows(index * n, n) = this->narrowed(S + S.transpose());
      }
      const auto own = this->put(A, count);
      const auto square = this->put(A, count), commuting = this->put(A, count), polynomial = this->put(A, count);
      algebra.symmetric_products(this->stream(), 2, in(own), Transpose::no, 0.5, square, count);
      algebra.commuting_products(this->stream(), in(own), in(own), -3, commuting, count);
      algebra.quadratics(this->stream(), -2, 0.5, in(own), polynomial, count);
      const auto squares = this->get(square, count), products = this->get(commuting, count),
                 polynomials = this->get(polynomial, count);
      for (std::int64_t index = 0; index < count; ++index) {
        const auto of = [&](const auto& stack) { return Matrix<TypeParam>(stack.middleRows(index * n, n)); };
        const Matrix<double> exact = this->widened(of(A)), sizes = exact.cwiseAbs() * exact.cwiseAbs();
        const auto expect = [&](const Matrix<TypeParam>& got, double a, double b) {
          this->expect_near(got, a * exact + b * exact * exact, std::abs(a) * exact.cwiseAbs() + b * sizes, n);
          EXPECT_EQ(this->widened(got), Matrix<double>(this->widened(got).transpose()));
        };
        expect(of(squares), 0.5, 2);
        expect(of(products), -3, 1);
        expect(of(polynomials), -2, 0.5);
      }
    }
  }
}

}  // namespace
}  // namespace canzona::optimized
