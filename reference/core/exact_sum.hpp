// A sum of doubles without rounding: the same bits whatever the order and the grouping of its terms.
#pragma once

#include <array>
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
  static constexpr std::int64_t bytes() { return 8 * (kDigits + 1); }

  /// The sum as bytes() / 8 integers: what travels. Sums of them, integer by integer, are sums.
  void write(std::int64_t* integers) const;
  void add(const std::int64_t* integers);

  friend bool operator==(const ExactSum& a, const ExactSum& b) {
    return a.not_finite_ == b.not_finite_ && a.carried() == b.carried();
  }

 private:
  static constexpr int kDigitBits = 32;
  static constexpr int kLowest = -1074;                                    // exponent of the lowest bit
  static constexpr std::int64_t kDigits = (1024 + 1074) / kDigitBits + 4;  // the largest double, and carries above it
  using Digits = std::array<std::int64_t, kDigits>;

  Digits carried() const;
  void carry();

  Digits digits_{};
  std::int64_t not_finite_ = 0;
  std::int64_t since_carry_ = 0;  ///< additions since every digit was below 2³²
};

}  // namespace canzona
