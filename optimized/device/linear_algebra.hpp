// Matrix products and factorizations on a device. Matrices are row-major; all calls are asynchronous on the stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/device/memory.hpp"
#include "optimized/device/narrow.hpp"
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

template <class T>
MatrixView<const T> in(const MatrixView<T>& matrix) {
  return {matrix.data, matrix.rows, matrix.cols};
}

enum class Transpose { no, yes };

/// Products of matrices of T: double, float, Bf16 or Fp16. Sums are made in Wide<T> and rounded once, to T.
///
/// The plural forms do `count` equal products: each operand is the first of a stack, whose matrices follow one another.
template <class T>
class MatrixProducts {
 public:
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  using Scalar = Wide<T>;

  MatrixProducts() = default;
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;
  virtual ~MatrixProducts() = default;

  /// C ← alpha·op(A)·op(B) + beta·C
  virtual void products(Stream& stream, Scalar alpha, In A, Transpose a, In B, Transpose b, Scalar beta, Out C,
                        std::int64_t count) = 0;
  void product(Stream& stream, Scalar alpha, In A, Transpose a, In B, Transpose b, Scalar beta, Out C) {
    products(stream, alpha, A, a, B, b, beta, C, 1);
  }
  /// C ← alpha·A·Aᵀ + beta·C (or AᵀA), C symmetric before and after: half the FLOPs of a product.
  virtual void symmetric_products(Stream& stream, Scalar alpha, In A, Transpose a, Scalar beta, Out C,
                                  std::int64_t count) = 0;
  void symmetric_product(Stream& stream, Scalar alpha, In A, Transpose a, Scalar beta, Out C) {
    symmetric_products(stream, alpha, A, a, beta, C, 1);
  }
  /// C ← A·B + beta·C of symmetric matrices, of which A and B commute, so that C stays symmetric: half the FLOPs of a
  /// product.
  virtual void commuting_products(Stream& stream, In A, In B, Scalar beta, Out C, std::int64_t count) = 0;
  /// P ← bA + cA² of a symmetric A: half the FLOPs of a product.
  virtual void quadratics(Stream& stream, Scalar b, Scalar c, In A, Out P, std::int64_t count) = 0;
};

/// Factorizations of square matrices of T: double or float.
template <class T>
class Factorizations {
 public:
  Factorizations() = default;
  Factorizations(const Factorizations&) = delete;
  Factorizations& operator=(const Factorizations&) = delete;
  virtual ~Factorizations() = default;

  /// Bytes of work memory that either needs for n × n. Throws InputError where n is beyond the backend.
  virtual std::int64_t bytes(std::int64_t n) const = 0;
  /// A = V·diag(values)·Vᵀ, values ascending; A is replaced by V, eigenvectors in columns. What fails in fp32 is solved
  /// again in fp64. found[0] is 1, or 0 where A is not finite or there was nothing finite, and A is spoilt.
  virtual void eigh(Stream& stream, MatrixView<T> A, DevicePointer<T> values, DevicePointer<std::int32_t> found,
                    DevicePointer<std::byte> work) = 0;
  /// A is replaced by the orthogonal factor of its QR decomposition; by something not finite where A was not.
  virtual void qr(Stream& stream, MatrixView<T> A, DevicePointer<std::byte> work) = 0;
};

/// Its own products are in fp32.
class LinearAlgebra : public MatrixProducts<float> {
 public:
  template <class T>
  MatrixProducts<T>& in() {
    if constexpr (std::is_same_v<T, double>) return fp64();
    if constexpr (std::is_same_v<T, float>) return *this;
    if constexpr (std::is_same_v<T, Bf16>) return bf16();
    if constexpr (std::is_same_v<T, Fp16>) return fp16();
  }

  template <class T>
  Factorizations<T>& factorizations() {
    if constexpr (std::is_same_v<T, double>) return fp64_factorizations();
    if constexpr (std::is_same_v<T, float>) return fp32_factorizations();
  }

 private:
  virtual MatrixProducts<double>& fp64() = 0;
  virtual MatrixProducts<Bf16>& bf16() = 0;
  virtual MatrixProducts<Fp16>& fp16() = 0;
  virtual Factorizations<double>& fp64_factorizations() = 0;
  virtual Factorizations<float>& fp32_factorizations() = 0;
};

}  // namespace canzona::optimized
