// Two-byte floats on the host and in kernels: kept and sent as such, computed with in fp32.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "reference/core/dtype.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {

/// The upper half of an fp32, rounded to nearest, ties to even; a NaN stays one.
struct Bf16 {
  std::uint16_t bits = 0;

  constexpr Bf16() = default;
  explicit constexpr Bf16(float value) {
    const auto own = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (own & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>((is_nan ? own | 0x400000U : own + 0x7fffU + ((own >> 16) & 1U)) >> 16);
  }
  explicit constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE half precision, rounded to nearest, ties to even; what is too large becomes infinite, a NaN stays one.
struct Fp16 {
  std::uint16_t bits = 0;

  constexpr Fp16() = default;
  explicit constexpr Fp16(float value) {
    const auto own = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = own & 0x7fffffffU;
    std::uint32_t half = 0;
    if (size > 0x7f800000U) {
      half = 0x7e00U;
    } else if (size >= kOverflow) {
      half = 0x7c00U;
    } else if (size < kSmallestNormal) {
      // Beside 0.5, an fp32 has the steps of a subnormal half: the addition rounds.
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
    } else {
      half = (size + 0xfffU + ((size >> 13) & 1U) - kExponents) >> 13;
    }
    bits = static_cast<std::uint16_t>(((own >> 16) & 0x8000U) | half);
  }
  explicit constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t size = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
    std::uint32_t own = size + kExponents;
    if (size >= 0x0f800000U) own += kExponents;  // infinite or NaN
    // A subnormal one has no leading 1: it is taken off again.
    if (size < 0x00800000U) own = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size + kSmallestNormal) - 0x1p-14f);
    return std::bit_cast<float>(sign | own);
  }

 private:
  static constexpr std::uint32_t kExponents = (127U - 15U) << 23;       // between the exponents' biases
  static constexpr std::uint32_t kOverflow = 0x477ff000U;               // 65520, which rounds beyond the largest
  static constexpr std::uint32_t kSmallestNormal = (127U - 14U) << 23;  // 2⁻¹⁴
};

/// In what a type's sums and factors are.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// visit(T{}) of the element type that `type` names.
template <class Visit>
decltype(auto) with_type(DType type, Visit&& visit) {
  switch (type) {
    case DType::fp64: return visit(double{});
    case DType::fp32: return visit(float{});
    case DType::bf16: return visit(Bf16{});
    case DType::fp16: return visit(Fp16{});
  }
  throw Error("no such element type");
}

/// The same of the types that weights have.
template <class Visit>
decltype(auto) with_weight_type(DType type, Visit&& visit) {
  if (type == DType::fp64) throw Error("no weights are in fp64");
  return type == DType::fp32 ? visit(float{}) : type == DType::bf16 ? visit(Bf16{}) : visit(Fp16{});
}

}  // namespace canzona::optimized
