#include "reference/core/dtype.hpp"

#include <Eigen/Core>
#include <string>

#include "reference/core/error.hpp"

namespace canzona {

std::int64_t bytes_of(DType type) {
  switch (type) {
    case DType::fp64: return 8;
    case DType::fp32: return 4;
    case DType::bf16:
    case DType::fp16: return 2;
  }
  throw Error("no such element type");
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::fp64: return "fp64";
    case DType::fp32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::fp16: return "fp16";
  }
  throw Error("no such element type");
}

DType parse_dtype(std::string_view name, std::string_view origin) {
  for (const DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    if (name == name_of(type)) return type;
  }
  throw InputError("", origin, "'" + std::string(name) + "'", "fp64, fp32, bf16, fp16");
}

float round_to(DType type, float value) {
  switch (type) {
    case DType::fp64:
    case DType::fp32: return value;
    case DType::bf16: return static_cast<float>(Eigen::bfloat16(value));
    case DType::fp16: return static_cast<float>(Eigen::half(value));
  }
  throw Error("no such element type");
}

double round_to(DType type, double value) {
  return type == DType::fp64 ? value : round_to(type, static_cast<float>(value));
}

}  // namespace canzona
