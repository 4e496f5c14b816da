// A sum of doubles without rounding: the same bits whatever the order and the grouping of its terms.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace canzona {

/// Every finite double is an integer multiple of 2⁻¹⁰⁷⁴ below 2¹⁰²⁴·2¹⁰⁷⁴, so a sum of them is one long integer, kept
/// in 32-bit digits with room for carries. Adding two sums is adding integers: an all-reduce of 64-bit integers will
/// do.
class ExactSum {
 public:
  /// A value that is not finite is counted and adds nothing.
  void add(double value);
  void add(const ExactSum& other);
  /// The squares of floats, each exact: what adding them one by one gives, several times faster.
  void add_squares(const float* values, std::int64_t count);

  /// The sum, rounded once per digit from the highest: a function of its exact value alone.
  double value() const;
  std::int64_t not_finite() const { return not_finite_; }

  /// What it takes to send one.
  static constexpr std::int64_t bytes() { return 8 * kIntegers; }

  /// The sum as kIntegers integers: what travels. Sums of them, integer by integer, are sums.
  void write(std::int64_t* integers) const;
  void add(const std::int64_t* integers);

  static constexpr int kDigitBits = 32;
  static constexpr int kLowest = -1074;                                    ///< exponent of the lowest bit
  static constexpr std::int64_t kDigits = (1024 + 1074) / kDigitBits + 4;  ///< the largest double, and carries above it
  static constexpr std::int64_t kIntegers = kDigits + 1;                   ///< and the count of what is not finite

  // The parts of add_squares, for devices. A float is m·2^(e − 150) with an integer m < 2²⁴, so squares with one e add
  // up as integers.

  struct Square {
    int exponent;
    std::uint64_t value;  ///< m², or 1 where the float is not finite
  };
  static constexpr int kExponents = 256;
  static constexpr std::int64_t kMostSquares = 32768;  ///< of one exponent: m² < 2⁴⁸, so that many fit 64 bits
  static constexpr Square square(float value) {
    constexpr std::uint32_t kHidden = 1U << 23;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto exponent = static_cast<int>((bits >> 23) & (kExponents - 1));
    const std::uint64_t mantissa = (bits & (kHidden - 1)) | (exponent == 0 ? 0 : kHidden);
    return {exponent, exponent == kExponents - 1 ? 1 : mantissa * mantissa};
  }
  /// add(integer, part) for every part of a sum of squares of one exponent; a part is below 2³³.
  template <class Add>
  static constexpr void spread(std::uint64_t sum, int exponent, const Add& add) {
    if (sum == 0) return;
    if (exponent == kExponents - 1) return add(kDigits, static_cast<std::int64_t>(sum));
    constexpr std::uint64_t kMask = 0xffffffff;
    const int position = 2 * ((exponent == 0 ? 1 : exponent) - 150) - kLowest;
    const std::uint64_t low = (sum & kMask) << position % kDigitBits;
    const std::uint64_t high = (sum >> kDigitBits) << position % kDigitBits;
    const std::int64_t digit = position / kDigitBits;
    add(digit, static_cast<std::int64_t>(low & kMask));
    add(digit + 1, static_cast<std::int64_t>((low >> kDigitBits) + (high & kMask)));
    add(digit + 2, static_cast<std::int64_t>(high >> kDigitBits));
  }
  /// To integers as write() gives them; up to 2³⁶ values between two carries.
  static void add_squares(const float* values, std::int64_t count, std::int64_t* integers);
  /// Makes every digit but the highest smaller than 2³².
  static constexpr void carry(std::int64_t* integers) {
    std::int64_t carried = 0;
    for (std::int64_t digit = 0; digit + 1 < kDigits; ++digit) {
      const std::int64_t total = integers[digit] + carried;
      carried = total >> kDigitBits;  // towards −∞, so that what is left is not negative
      integers[digit] = total - carried * (std::int64_t{1} << kDigitBits);
    }
    integers[kDigits - 1] += carried;
  }

  friend bool operator==(const ExactSum& a, const ExactSum& b) {
    return a.not_finite_ == b.not_finite_ && a.carried() == b.carried();
  }

 private:
  using Digits = std::array<std::int64_t, kDigits>;

  Digits carried() const;
  void carry();

  Digits digits_{};
  std::int64_t not_finite_ = 0;
  std::int64_t since_carry_ = 0;  ///< additions since every digit was below 2³²
};

}  // namespace canzona
