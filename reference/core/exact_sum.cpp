#include "reference/core/exact_sum.hpp"

#include <cmath>

namespace canzona {
namespace {

/// An addition moves a digit by less than 2³²; so many of them fit beside what a digit holds.
constexpr std::int64_t kMostAdditions = std::int64_t{1} << 29;

}  // namespace

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    ++not_finite_;
    return;
  }
  constexpr int kMantissaBits = 53;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // value = fraction · 2^exponent, |fraction| in [½, 1)
  auto mantissa = static_cast<std::int64_t>(std::ldexp(fraction, kMantissaBits));
  int position = exponent - kMantissaBits - kLowest;
  if (position < 0) {  // a subnormal: its lowest bits are zero
    mantissa >>= -position;
    position = 0;
  }
  const auto first = static_cast<std::size_t>(position / kDigitBits);
  const bool negative = mantissa < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -mantissa : mantissa);
  const int shift = position % kDigitBits;
  constexpr std::uint64_t kMask = 0xffffffff;
  const std::uint64_t above = magnitude >> (kDigitBits - shift);  // what the shift moves past the first digit
  const std::uint64_t parts[] = {(magnitude << shift) & kMask, above & kMask, above >> kDigitBits};
  for (std::size_t digit = 0; digit < 3; ++digit) {
    const auto part = static_cast<std::int64_t>(parts[digit]);
    digits_[first + digit] += negative ? -part : part;
  }
  if (++since_carry_ >= kMostAdditions) carry();
}

void ExactSum::add(const ExactSum& other) {
  carry();
  const Digits digits = other.carried();
  for (std::size_t digit = 0; digit < digits_.size(); ++digit) digits_[digit] += digits[digit];
  not_finite_ += other.not_finite_;
  since_carry_ = 1;
}

double ExactSum::value() const {
  const Digits digits = carried();
  if (digits.back() < 0) {
    ExactSum negated;
    for (std::size_t digit = 0; digit < digits.size(); ++digit) negated.digits_[digit] = -digits[digit];
    return -negated.value();
  }
  double sum = 0;
  for (std::size_t digit = digits.size(); digit-- > 0;)
    sum += std::ldexp(static_cast<double>(digits[digit]), static_cast<int>(digit) * kDigitBits + kLowest);
  return sum;
}

ExactSum::Digits ExactSum::carried() const {
  Digits digits = digits_;
  std::int64_t carry = 0;
  for (std::size_t digit = 0; digit + 1 < digits.size(); ++digit) {
    const std::int64_t total = digits[digit] + carry;
    carry = total >> kDigitBits;  // towards −∞, so that every digit but the highest is in [0, 2³²)
    digits[digit] = total - carry * (std::int64_t{1} << kDigitBits);
  }
  digits.back() += carry;
  return digits;
}

void ExactSum::carry() {
  digits_ = carried();
  since_carry_ = 0;
}

}  // namespace canzona
