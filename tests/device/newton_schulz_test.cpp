// The variants of Newton–Schulz: how far each is from the polynomial in fp64, and a stack against one matrix at a time.
#include "optimized/optimizers/newton_schulz.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <Eigen/QR>

#include "reference/core/error.hpp"
#include "tests/device/trials.hpp"

namespace canzona::optimized {
namespace {

using namespace trials;
using reference::EpsForm;

/// Orthogonal columns.
Matrix<double> orthogonal(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  const Eigen::HouseholderQR<Matrix<double>> qr(random_matrix<double>(rows, cols, seed));
  return qr.householderQ() * Matrix<double>::Identity(rows, cols);
}

/// Singular values of `spectrum`, normalized, rounded to fp32.
Matrix<float> with_spectrum(Shape shape, const std::string& spectrum, std::uint64_t seed) {
  Matrix<double> X = random_matrix<double>(shape.rows, shape.cols, seed);
  const std::int64_t side = shape.shorter();
  if (spectrum != "gaussian") {
    Eigen::VectorXd values(side);
    for (std::int64_t i = 0; i < side; ++i) {
      const double place = static_cast<double>(i) / static_cast<double>(std::max<std::int64_t>(side - 1, 1));
      values[i] = spectrum == "condition 1e3"   ? std::pow(1e-3, place)
                  : spectrum == "condition 1e7" ? std::pow(1e-7, place)
                                                : (i < (side + 1) / 2 ? 1 : 0);  // half the rank
    }
    X = orthogonal(shape.rows, side, seed) * values.asDiagonal() *
        orthogonal(shape.cols, side, seed + 1000).transpose();
  }
  return (X / X.norm()).cast<float>();
}

Matrix<float> orthogonalized(const Matrix<float>& X, const std::vector<reference::Coefficients>& coefficients,
                             const std::string& variant, std::int64_t count = 1, int threads = 1,
                             DType arithmetic = DType::fp32) {
  device_under_test::OnDevice own(threads);
  Workspace workspace(*own.device);
  NewtonSchulz newton_schulz(*own.device, workspace, 0, {X.rows() / count, X.cols()}, count, coefficients, variant,
                             arithmetic);
  const MatrixOut result = own.put(X);
  newton_schulz.run(*own.stream, result.data);
  return own.get(result);
}

double distance(const Matrix<float>& from, const Matrix<double>& exact) {
  return frobenius_norm(Matrix<double>(from.cast<double>() - exact)) / frobenius_norm(exact);
}

/// What a variant may be farther from fp64 than the plain form in fp32, whose error is ε·∏aᵢ at most. Other products in
/// another order are the same up to the draw of their rounding: 2. In the Gram form an error ε of G has become
/// (a₁a₂)²ε in the third step of a segment, where P₃ turns it into |b₃|(a₁a₂)²ε of X, which is 1 at most there; the
/// further steps raise that by a₄a₅: |b₃|a₁a₂/a₃ of ε·∏aᵢ. Without a restart it would be |b₅|(a₁a₂a₃a₄)/a₅.
/// A GPU adds k products one after another, with an error that grows as √k; the host's kernels cut sums into blocks, as
/// the plain form's do. The emulated one was seen at 2.2 where the host stays below 2: so twice as much there.
double allowed(const std::string& variant, const std::vector<reference::Coefficients>& steps) {
  if (variant != "gram") return device_under_test::kIsHost ? 2 : 4;
  return 1 + std::abs(steps[2][1]) * steps[0][0] * steps[1][0] / steps[2][0];
}

TEST(EngineNewtonSchulz, IsNotMuchFartherFromFp64ThanThePlainFp32Form) {
  for (const std::string coefficients : {"simple", "quintic", "polar_express"}) {
    const auto list = reference::newton_schulz_coefficients(coefficients, 5);
    std::map<std::string, double> worst;
    for (const std::string spectrum : {"gaussian", "condition 1e3", "condition 1e7", "half the rank"}) {
      for (const Shape& shape : std::vector<Shape>{{48, 48}, {40, 100}, {100, 40}, {64, 257}, {300, 300}}) {
        double plain = 0;
        std::map<std::string, double> error;
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          const Matrix<float> X = with_spectrum(shape, spectrum, seed);
          const Matrix<double> exact =
              reference::newton_schulz<double>(X.cast<double>(), list, 0, EpsForm::max, DType::fp64);
          plain += distance(reference::newton_schulz<float>(X, list, 0, EpsForm::max, DType::fp32), exact);
          for (const std::string& variant : newton_schulz_variants())
            error[variant] += distance(orthogonalized(X, list, variant), exact);
        }
        for (const auto& [variant, sum] : error) {
          worst[variant] = std::max(worst[variant], sum / plain);
          EXPECT_LE(sum, allowed(variant, list) * plain)
              << variant << ' ' << coefficients << ' ' << spectrum << ' ' << shape.rows << " by " << shape.cols
              << ": plain " << plain / 3;
        }
      }
    }
    for (const auto& [variant, ratio] : worst)
      RecordProperty(coefficients + " " + variant, fmt::format("{:.2f}", ratio));
  }
}

// The engine rounds less often in a step than the reference does: it is nearer to fp64 on most matrices. What the Gram
// form may be farther is measured (Dao-AILab/gram-newton-schulz's restart after three steps, over 30 spectra): 1.8 in
// bf16 where plain bf16 tells anything, 1.4 in fp16.
TEST(EngineNewtonSchulz, InTwoBytesIsNotFartherFromFp64ThanTheReferenceSo) {
  const auto list = reference::newton_schulz_coefficients("simple", 5);
  for (const DType arithmetic : {DType::bf16, DType::fp16}) {
    for (const std::string spectrum : {"gaussian", "condition 1e3"}) {
      for (const Shape& shape : std::vector<Shape>{{48, 48}, {40, 100}, {100, 40}, {64, 257}}) {
        double plain = 0;
        std::map<std::string, double> error;
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          const Matrix<float> X = with_spectrum(shape, spectrum, seed);
          const Matrix<double> exact =
              reference::newton_schulz<double>(X.cast<double>(), list, 0, EpsForm::max, DType::fp64);
          plain += distance(reference::newton_schulz<float>(X, list, 0, EpsForm::max, arithmetic), exact);
          for (const std::string& variant : newton_schulz_variants())
            error[variant] += distance(orthogonalized(X, list, variant, 1, 1, arithmetic), exact);
        }
        for (const auto& [variant, sum] : error) {
          EXPECT_LE(sum, (variant == "gram" ? 1.8 : 1.1) * plain)
              << variant << ' ' << name_of(arithmetic) << ' ' << spectrum << ' ' << shape.rows << " by " << shape.cols
              << ": plain " << plain / 3;
        }
      }
    }
  }
}

TEST(EngineNewtonSchulz, InFp64IsTheReference) {
  const auto list = reference::newton_schulz_coefficients("quintic", 5);
  const Matrix<float> X = with_spectrum({40, 100}, "condition 1e3", 1);
  const Matrix<double> exact = reference::newton_schulz<double>(X.cast<double>(), list, 0, EpsForm::max, DType::fp64);
  for (const std::string& variant : newton_schulz_variants())
    EXPECT_LE(distance(orthogonalized(X, list, variant, 1, 1, DType::fp64), exact), 0x1p-24) << variant;
}

TEST(EngineNewtonSchulz, AStackIsEveryMatrixAloneOnAnyNumberOfThreads) {
  const auto list = reference::newton_schulz_coefficients("simple", 5);
  const Options muon_options(reference::Optimizers::instance().find("muon").options, {}, "muon");
  for (const std::string& variant : newton_schulz_variants()) {
    for (const Shape& shape : std::vector<Shape>{{1, 9}, {9, 1}, {17, 40}, {40, 17}, {130, 130}}) {
      constexpr std::int64_t kCount = 5;
      Matrix<float> stack(kCount * shape.rows, shape.cols), expected = stack;
      for (std::int64_t index = 0; index < kCount; ++index) {
        const Matrix<float> X = with_spectrum(shape, "gaussian", static_cast<std::uint64_t>(index));
        stack.middleRows(index * shape.rows, shape.rows) = X;
        expected.middleRows(index * shape.rows, shape.rows) = orthogonalized(X, list, variant);
      }
      for (const int threads : device_under_test::thread_counts()) {
        const Matrix<float> got = orthogonalized(stack, list, variant, kCount, threads);
        if (device_under_test::kStacksAreBitwise) {
          EXPECT_EQ(got, expected) << variant << ' ' << threads;
        } else {
          const double amplified = newton_schulz_amplification(muon_options, variant).value() * kEpsilon;
          EXPECT_LE((got - expected).norm(), amplified * expected.norm()) << variant;
        }
      }
    }
  }
}

TEST(EngineNewtonSchulz, TheGramFormMayRoundMore) {
  const Options options(reference::Optimizers::instance().find("muon").options, {}, "muon");
  const double a = 3.4445, b = 4.7750;
  EXPECT_NEAR(newton_schulz_amplification(options, "symmetric").value(), std::pow(a, 5), 1e-9);
  EXPECT_NEAR(newton_schulz_amplification(options, "gram").value(), std::pow(a, 5) * (1 + b * a), 1e-6);
}

TEST(EngineNewtonSchulz, CountsWhatItExecutes) {
  // 2 by 3: a product of 2 by 2 by 3 has 24 FLOPs, its triangle 18; of 2 by 2 by 2, 16 and 12.
  EXPECT_EQ(newton_schulz_flops("dense", {2, 3}, 5), 5 * (24 + 16 + 24));
  EXPECT_EQ(newton_schulz_flops("symmetric", {3, 2}, 5), 5 * (18 + 12 + 24));
  EXPECT_EQ(newton_schulz_flops("gram", {2, 3}, 5), 2 * (18 + 24) + (5 + 3 * 3) * 12);
}

TEST(EngineOptimizers, AnUnknownVariantIsRefusedWithTheAllowedOnes) {
  const auto refusal = [](const std::string& optimizer, const std::string& variant) -> std::string {
    try {
      EngineRun({.optimizer = optimizer, .given = {}, .shape = {4, 4}, .variant = variant}, {0});
    } catch (const InputError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal("muon", "gramm"), "variant of muon is 'gramm', allowed: symmetric, dense, gram");
  EXPECT_EQ(refusal("adamw", "gram"), "variant of adamw is 'gram', allowed: none, there is one way");
  EXPECT_EQ(refusal("muon", "gram"), "taken");
}

}  // namespace
}  // namespace canzona::optimized
