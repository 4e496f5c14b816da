#include "reference/core/exact_sum.hpp"

#include <algorithm>
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
  std::int64_t integers[kIntegers];
  other.write(integers);
  add(integers);
}

void ExactSum::write(std::int64_t* integers) const {
  const Digits digits = carried();
  std::copy(digits.begin(), digits.end(), integers);
  integers[kDigits] = not_finite_;
}

void ExactSum::add(const std::int64_t* integers) {
  carry();
  for (std::size_t digit = 0; digit < digits_.size(); ++digit) digits_[digit] += integers[digit];
  not_finite_ += integers[kDigits];
  since_carry_ = 1;
}

void ExactSum::add_squares(const float* values, std::int64_t count) {
  std::int64_t integers[kIntegers] = {};
  add_squares(values, count, integers);
  add(integers);
}

void ExactSum::add_squares(const float* values, std::int64_t count, std::int64_t* integers) {
  constexpr std::size_t kLanes = 4;  // neighbours mostly have one exponent: they need not wait for each other
  for (std::int64_t begin = 0; begin < count; begin += kMostSquares) {
    const std::int64_t end = std::min(begin + kMostSquares, count);
    std::uint64_t bins[kExponents][kLanes] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const Square own = square(values[i]);
      bins[own.exponent][static_cast<std::size_t>(i) % kLanes] += own.value;
    }
    for (int exponent = 0; exponent < kExponents; ++exponent) {
      for (const std::uint64_t bin : bins[exponent])
        spread(bin, exponent, [&](std::int64_t integer, std::int64_t part) { integers[integer] += part; });
    }
  }
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
  carry(digits.data());
  return digits;
}

void ExactSum::carry() {
  digits_ = carried();
  since_carry_ = 0;
}

}  // namespace canzona
