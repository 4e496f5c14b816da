#include "optimized/host/host_products.hpp"

#include <cblas.h>

#include <algorithm>

namespace canzona::optimized {
namespace {

/// C ← alpha·op(A)·op(B) + beta·C, of whole matrices.
template <class T>
struct Product {
  Wide<T> alpha, beta;
  const T* A;
  Transpose a;
  std::int64_t width_a;
  const T* B;
  Transpose b;
  std::int64_t width_b;
  T* C;
  std::int64_t rows, cols, inner;
};

constexpr std::int64_t kTile = 128;   // rows and columns of C
constexpr std::int64_t kDepth = 256;  // of the inner dimension

/// Rows [row, row + rows) and columns [col, col + cols) of op(M), widened.
template <class T>
void widen(const T* M, Transpose transpose, std::int64_t width, std::int64_t row, std::int64_t rows, std::int64_t col,
           std::int64_t cols, float* tile) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      const std::int64_t at = transpose == Transpose::no ? (row + i) * width + col + j : (col + j) * width + row + i;
      tile[i * cols + j] = static_cast<float>(M[at]);
    }
  }
}

template <class T>
void multiply_tile(const Product<T>& own, std::int64_t row, std::int64_t col) {
  const std::int64_t rows = std::min(kTile, own.rows - row), cols = std::min(kTile, own.cols - col);
  float sums[kTile * kTile] = {};
  float A[kTile * kDepth], B[kDepth * kTile];
  for (std::int64_t begin = 0; begin < own.inner; begin += kDepth) {
    const std::int64_t inner = std::min(kDepth, own.inner - begin);
    widen(own.A, own.a, own.width_a, row, rows, begin, inner, A);
    widen(own.B, own.b, own.width_b, begin, inner, col, cols, B);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(rows), static_cast<int>(cols),
                static_cast<int>(inner), 1, A, static_cast<int>(inner), B, static_cast<int>(cols), 1, sums,
                static_cast<int>(cols));
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    T* out = own.C + (row + i) * own.cols + col;
    for (std::int64_t j = 0; j < cols; ++j) {
      const float product = own.alpha * sums[i * cols + j];
      out[j] = static_cast<T>(own.beta == 0 ? product : product + own.beta * static_cast<float>(out[j]));
    }
  }
}

template <class T>
void multiply_strip(const Product<T>& own, std::int64_t row) {
  for (std::int64_t col = 0; col < own.cols; col += kTile) multiply_tile(own, row, col);
}

void multiply_strip(const Product<double>& own, std::int64_t row) {
  const std::int64_t rows = std::min(kTile, own.rows - row);
  const auto blas = [](Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; };
  cblas_dgemm(CblasRowMajor, blas(own.a), blas(own.b), static_cast<int>(rows), static_cast<int>(own.cols),
              static_cast<int>(own.inner), own.alpha, own.A + row * (own.a == Transpose::no ? own.width_a : 1),
              static_cast<int>(own.width_a), own.B, static_cast<int>(own.width_b), own.beta, own.C + row * own.cols,
              static_cast<int>(own.cols));
}

}  // namespace

template <class T>
void HostProducts<T>::products(Stream& stream, Scalar alpha, In A, Transpose a, In B, Transpose b, Scalar beta, Out C,
                               std::int64_t count) {
  const Product<T> first{alpha, beta,   A.data.raw(), a,      A.cols, B.data.raw(),
                         b,     B.cols, C.data.raw(), C.rows, C.cols, a == Transpose::yes ? A.rows : A.cols};
  const std::int64_t strips = (C.rows + kTile - 1) / kTile;
  stream.run([=, this, size_a = A.size(), size_b = B.size(), size_c = C.size()] {
    team_.run(count * strips, [&](std::int64_t piece) {
      const std::int64_t index = piece / strips;
      Product<T> own = first;
      own.A += index * size_a;
      own.B += index * size_b;
      own.C += index * size_c;
      multiply_strip(own, piece % strips * kTile);
    });
  });
}

template <class T>
void HostProducts<T>::symmetric_products(Stream& stream, Scalar alpha, In A, Transpose a, Scalar beta, Out C,
                                         std::int64_t count) {
  products(stream, alpha, A, a, A, a == Transpose::yes ? Transpose::no : Transpose::yes, beta, C, count);
  mirror(stream, C, count);
}

template <class T>
void HostProducts<T>::commuting_products(Stream& stream, In A, In B, Scalar beta, Out C, std::int64_t count) {
  products(stream, 1, A, Transpose::no, B, Transpose::no, beta, C, count);
  mirror(stream, C, count);
}

template <class T>
void HostProducts<T>::quadratics(Stream& stream, Scalar b, Scalar c, In A, Out P, std::int64_t count) {
  stream.run([=] { std::copy_n(A.data.raw(), count * A.size(), P.data.raw()); });
  products(stream, c, A, Transpose::no, A, Transpose::no, b, P, count);
  mirror(stream, P, count);
}

/// The lower triangle becomes the mirror image of the upper one.
template <class T>
void HostProducts<T>::mirror(Stream& stream, Out C, std::int64_t count) {
  stream.run([=] {
    for (std::int64_t index = 0; index < count; ++index) {
      T* own = C.data.raw() + index * C.size();
      for (std::int64_t i = 0; i < C.rows; ++i) {
        for (std::int64_t j = 0; j < i; ++j) own[i * C.cols + j] = own[j * C.cols + i];
      }
    }
  });
}

template class HostProducts<double>;
template class HostProducts<Bf16>;
template class HostProducts<Fp16>;

}  // namespace canzona::optimized
