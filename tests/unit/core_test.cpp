#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/core/dtype.hpp"
#include "reference/core/error.hpp"
#include "reference/core/integer.hpp"
#include "reference/core/matrix.hpp"
#include "reference/core/options.hpp"
#include "reference/core/random.hpp"

namespace canzona {
namespace {

TEST(Rounding, Bf16KeepsEightBitsToNearestEven) {
  EXPECT_EQ(round_to(DType::bf16, 1.0f), 1.0f);
  EXPECT_EQ(round_to(DType::bf16, 1.0f + 1.0f / 256), 1.0f);               // halfway, even below
  EXPECT_EQ(round_to(DType::bf16, 1.0f + 3.0f / 256), 1.0f + 4.0f / 256);  // halfway, even above
  EXPECT_EQ(round_to(DType::bf16, 1.0f + 1.1f / 256), 1.0f + 2.0f / 256);
  EXPECT_TRUE(std::isnan(round_to(DType::bf16, std::numeric_limits<float>::quiet_NaN())));
}

TEST(Rounding, Fp16KeepsElevenBitsAndOverflowsAbove65504) {
  EXPECT_EQ(round_to(DType::fp16, 1.0f + 1.0f / 2048), 1.0f);
  EXPECT_EQ(round_to(DType::fp16, 65504.0f), 65504.0f);
  EXPECT_TRUE(std::isinf(round_to(DType::fp16, 65520.0f)));
  EXPECT_EQ(round_to(DType::fp16, 5.9604645e-8f), 5.9604645e-8f);  // the smallest subnormal, 2⁻²⁴
  EXPECT_EQ(round_to(DType::fp16, 2.0e-8f), 0.0f);
}

TEST(Rounding, Fp32RoundsADoubleAndFp64KeepsIt) {
  EXPECT_EQ(round_to(DType::fp32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(round_to(DType::fp64, 0.1), 0.1);
}

TEST(Integers, OverflowIsAnError) {
  EXPECT_EQ(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_THROW(checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31), InputError);
  EXPECT_THROW(checked_add(INT64_MAX, 1), InputError);
  EXPECT_EQ(align_up(1, 64), 64);
  EXPECT_EQ(align_up(64, 64), 64);
}

TEST(FrobeniusNorm, SumsInDoubleWhateverTheScalar) {
  // 2²⁴ ones: a float accumulator stops at 2²⁴, and one more element would be lost.
  const Matrix<float> ones = Matrix<float>::Ones(1, (1 << 24) + 9);
  EXPECT_EQ(frobenius_norm(ones), std::sqrt(static_cast<double>((1 << 24) + 9)));
}

TEST(RandomNormal, HasMeanZeroAndVarianceOneAndDependsOnEachCounter) {
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100000;
  const std::uint64_t key = random_key({1, 2, 3});
  for (int i = 0; i < kCount; ++i) {
    const double value = random_normal(key, i);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 4 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NE(random_key({1, 2, 3}), random_key({1, 2, 4}));
  EXPECT_NE(random_key({1, 2, 3}), random_key({2, 1, 3}));
  EXPECT_EQ(random_normal(key, 7), random_normal(key, 7));
}

const std::vector<OptionDescription> kOptions{{"alpha", NumberOption{0, 1}, "1", "", ""},
                                              {"steps", IntegerOption{1, 9}, "5", "steps", ""},
                                              {"form", WordOption{{"add", "max"}}, "max", "", ""}};

std::string complaint(const std::map<std::string, std::string>& given) {
  try {
    const Options options(kOptions, given, "thing");
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(Options, DefaultsHoldUntilOverridden) {
  const Options options(kOptions, {{"steps", "3"}}, "thing");
  EXPECT_EQ(options.integer("steps"), 3);
  EXPECT_EQ(options.number("alpha"), 1);
  EXPECT_TRUE(options.is("form", "max"));
}

TEST(Options, ComplaintsNameTheOptionTheValueAndWhatIsAllowed) {
  EXPECT_EQ(complaint({{"alpha", "1.5"}}), "thing: alpha is '1.5', allowed: a number from 0 to 1");
  EXPECT_EQ(complaint({{"alpha", "nan"}}), "thing: alpha is 'nan', allowed: a number from 0 to 1");
  EXPECT_EQ(complaint({{"alpha", "0.5x"}}), "thing: alpha is '0.5x', allowed: a number from 0 to 1");
  EXPECT_EQ(complaint({{"steps", "2.5"}}), "thing: steps is '2.5', allowed: an integer from 1 to 9");
  EXPECT_EQ(complaint({{"steps", "99999999999999999999"}}),
            "thing: steps is '99999999999999999999', allowed: an integer from 1 to 9");
  EXPECT_EQ(complaint({{"form", "min"}}), "thing: form is 'min', allowed: add, max");
  EXPECT_EQ(complaint({{"beta", "1"}}), "thing: option is 'beta', allowed: alpha, steps, form");
}

}  // namespace
}  // namespace canzona
