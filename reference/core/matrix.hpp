// Dense row-major matrices, and the norm whose order of summation is part of its definition.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>

#include "reference/core/dtype.hpp"
#include "reference/core/shape.hpp"

namespace canzona {

/// Row-major, as Megatron stores weights. Always owns aligned memory, so that equal inputs give equal bits.
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class Scalar>
Shape shape_of(const Matrix<Scalar>& matrix) {
  return {matrix.rows(), matrix.cols()};
}

/// Every element rounded to `type`.
template <class Scalar>
Matrix<Scalar> rounded(DType type, Matrix<Scalar> matrix) {
  if (type == DType::fp64 || (type == DType::fp32 && sizeof(Scalar) == sizeof(float))) return matrix;
  for (std::int64_t i = 0; i < matrix.size(); ++i) matrix.data()[i] = round_to(type, matrix.data()[i]);
  return matrix;
}

/// ‖matrix‖_F, summed in fp64 in row-major order.
template <class Scalar>
double frobenius_norm(const Matrix<Scalar>& matrix) {
  double sum = 0;
  for (std::int64_t i = 0; i < matrix.size(); ++i) {
    const double element = static_cast<double>(matrix.data()[i]);
    sum += element * element;
  }
  return std::sqrt(sum);
}

}  // namespace canzona
