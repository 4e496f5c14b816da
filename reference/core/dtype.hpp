// Element types, and the rounding that lets a CPU stand in for low-precision arithmetic.
#pragma once

#include <cstdint>
#include <string_view>

namespace canzona {

enum class DType { fp64, fp32, bf16, fp16 };

std::int64_t bytes_of(DType type);
std::string_view name_of(DType type);

/// Throws InputError naming `origin` when `name` is no element type.
DType parse_dtype(std::string_view name, std::string_view origin);

/// `value` rounded to nearest, ties to even, in `type`; overflow becomes infinity, NaN stays NaN.
float round_to(DType type, float value);
double round_to(DType type, double value);

}  // namespace canzona
