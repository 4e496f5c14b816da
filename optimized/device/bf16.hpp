// bf16 on its way between devices: the upper half of an fp32, rounded to nearest, ties to even. For the host and
// kernels.
#pragma once

#include <bit>
#include <cstdint>

namespace canzona::optimized {

/// A NaN stays one.
constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>((is_nan ? bits | 0x400000U : bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float from_bf16(std::uint16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

}  // namespace canzona::optimized
