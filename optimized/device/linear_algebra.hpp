// Matrix products and factorizations in fp32 on a device. Matrices are row-major; all calls are asynchronous on the
// stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// A matrix on the device, rows one after another.
template <class T>
struct MatrixView {
  DevicePointer<T> data;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  std::int64_t size() const { return rows * cols; }
};
using MatrixIn = MatrixView<const float>;
using MatrixOut = MatrixView<float>;

inline MatrixIn in(const MatrixOut& matrix) { return {matrix.data, matrix.rows, matrix.cols}; }

enum class Transpose { no, yes };

/// aI + bA + cA²
struct Quadratic {
  float a = 0;
  float b = 0;
  float c = 0;
};

class LinearAlgebra {
 public:
  LinearAlgebra() = default;
  LinearAlgebra(const LinearAlgebra&) = delete;
  LinearAlgebra& operator=(const LinearAlgebra&) = delete;
  virtual ~LinearAlgebra() = default;

  // The plural forms do `count` equal products: each operand is the first of a stack, whose matrices follow one
  // another.

  /// C ← alpha·op(A)·op(B) + beta·C
  virtual void products(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b, float beta,
                        MatrixOut C, std::int64_t count) = 0;
  void product(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b, float beta, MatrixOut C) {
    products(stream, alpha, A, a, B, b, beta, C, 1);
  }
  /// C ← alpha·A·Aᵀ + beta·C (or AᵀA), C symmetric before and after: half the FLOPs of a product.
  virtual void symmetric_products(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta, MatrixOut C,
                                  std::int64_t count) = 0;
  void symmetric_product(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta, MatrixOut C) {
    symmetric_products(stream, alpha, A, a, beta, C, 1);
  }
  /// C ← A·B of symmetric matrices that commute, so that C is symmetric too: half the FLOPs of a product.
  virtual void commuting_products(Stream& stream, MatrixIn A, MatrixIn B, MatrixOut C, std::int64_t count) = 0;
  /// P ← aI + bA + cA² of a symmetric A: half the FLOPs of a product.
  virtual void quadratics(Stream& stream, const Quadratic& coefficients, MatrixIn A, MatrixOut P,
                          std::int64_t count) = 0;
  /// Bytes of work memory that eigh and qr of an n × n matrix need. Throws InputError where n is beyond the backend.
  virtual std::int64_t factorization_bytes(std::int64_t n) const = 0;
  /// A = V·diag(values)·Vᵀ, values ascending; A is replaced by V, eigenvectors in columns. Solved again in fp64 where
  /// fp32 fails. found[0] is 1, or 0 where A is not finite or there was nothing finite, and A is spoilt.
  virtual void eigh(Stream& stream, MatrixOut A, DevicePointer<float> values, DevicePointer<std::int32_t> found,
                    DevicePointer<std::byte> work) = 0;
  /// A is replaced by the orthogonal factor of its QR decomposition; by something not finite where A was not.
  virtual void qr(Stream& stream, MatrixOut A, DevicePointer<std::byte> work) = 0;
};

}  // namespace canzona::optimized
