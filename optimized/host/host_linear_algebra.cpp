#include "optimized/host/host_linear_algebra.hpp"

#include <cblas.h>

#include <algorithm>
#include <type_traits>

#include "optimized/host/factorizations.hpp"

namespace canzona::optimized {
namespace {

CBLAS_TRANSPOSE blas(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }
int width(std::int64_t size) { return static_cast<int>(size); }

template <class T>
T* address(const MatrixView<T>& stack, std::int64_t index) {
  return (stack.data + index * stack.size()).raw();
}

/// The upper triangle of C ← alpha·A·Aᵀ + beta·C, or of AᵀA.
void upper_of_square(float alpha, const float* A, Transpose a, std::int64_t k, float beta, float* C, std::int64_t n) {
  cblas_ssyrk(CblasRowMajor, CblasUpper, blas(a), width(n), width(k), alpha, A, width(a == Transpose::no ? k : n), beta,
              C, width(n));
}

/// The upper triangle of C[begin…][begin…] ← A·B, `size` rows of it, of n × n matrices: cut into squares beside the
/// diagonal, as large as can be, for gemm, and small ones on it, whose lower half is computed for nothing.
void upper_of_product(const float* A, const float* B, float* C, std::int64_t n, std::int64_t begin, std::int64_t size) {
  constexpr std::int64_t kLeaf = 128;
  const auto multiply = [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, width(rows), width(cols), width(n), 1, A + row * n, width(n),
                B + col, width(n), 0, C + row * n + col, width(n));
  };
  if (size <= kLeaf) return multiply(begin, size, begin, size);
  const std::int64_t half = (size / 2 + 15) / 16 * 16;  // a multiple of the widest vector
  multiply(begin, half, begin + half, size - half);
  upper_of_product(A, B, C, n, begin, half);
  upper_of_product(A, B, C, n, begin + half, size - half);
}

constexpr std::int64_t kTile = 32;

/// What a triangle holds is whole as it is.
struct AsItIs {};

/// One tile of the upper triangle and its mirror image, by way of a copy: every line of the cache is met once.
template <class Finish>
void mirror_tile(float* C, std::int64_t n, std::int64_t row, std::int64_t col, const Finish& finish) {
  const std::int64_t rows = std::min(kTile, n - row);
  const std::int64_t cols = std::min(kTile, n - col);
  float tile[kTile][kTile];
  for (std::int64_t i = 0; i < rows; ++i) {
    float* own = C + (row + i) * n + col;
    const std::int64_t first = row == col ? i : 0;
    if constexpr (!std::is_same_v<Finish, AsItIs>) {
      for (std::int64_t j = first; j < cols; ++j) own[j] = finish(row + i, col + j, own[j]);
    }
    for (std::int64_t j = first; j < cols; ++j) tile[j][i] = own[j];
  }
  for (std::int64_t j = 0; j < cols; ++j)
    std::copy_n(tile[j], row == col ? std::min(j, rows) : rows, C + (col + j) * n + row);
}

}  // namespace

HostLinearAlgebra::HostLinearAlgebra(ThreadTeam& team) : team_(team) { openblas_set_num_threads(team.size()); }

template <class Compute>
void HostLinearAlgebra::each(std::int64_t count, const Compute& compute) {
  const bool side_by_side = team_.size() > 1 && count > 1;
  if (side_by_side) openblas_set_num_threads(1);
  team_.run(count, compute);
  if (side_by_side) openblas_set_num_threads(team_.size());
}

template <class Finish>
void HostLinearAlgebra::mirror(MatrixOut C, std::int64_t count, const Finish& finish_of) {
  constexpr std::int64_t kStrip = 4 * kTile;  // rows of one piece
  const std::int64_t n = C.rows;
  const std::int64_t strips = (n + kStrip - 1) / kStrip;
  team_.run(count * strips, [&](std::int64_t piece) {
    const std::int64_t index = piece / strips;
    const std::int64_t begin = piece % strips * kStrip;
    const auto finish = finish_of(index);
    for (std::int64_t row = begin; row < std::min(begin + kStrip, n); row += kTile) {
      for (std::int64_t col = row; col < n; col += kTile) mirror_tile(address(C, index), n, row, col, finish);
    }
  });
}

void HostLinearAlgebra::products(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b,
                                 float beta, MatrixOut C, std::int64_t count) {
  stream.run([=, this] {
    const std::int64_t k = a == Transpose::yes ? A.rows : A.cols;
    each(count, [&](std::int64_t index) {
      cblas_sgemm(CblasRowMajor, blas(a), blas(b), width(C.rows), width(C.cols), width(k), alpha, address(A, index),
                  width(A.cols), address(B, index), width(B.cols), beta, address(C, index), width(C.cols));
    });
  });
}

void HostLinearAlgebra::symmetric_products(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta,
                                           MatrixOut C, std::int64_t count) {
  stream.run([=, this] {
    const std::int64_t k = a == Transpose::yes ? A.rows : A.cols;
    each(count,
         [&](std::int64_t index) { upper_of_square(alpha, address(A, index), a, k, beta, address(C, index), C.rows); });
    mirror(C, count, [](std::int64_t /*matrix*/) { return AsItIs{}; });
  });
}

void HostLinearAlgebra::commuting_products(Stream& stream, MatrixIn A, MatrixIn B, MatrixOut C, std::int64_t count) {
  stream.run([=, this] {
    each(count, [&](std::int64_t index) {
      upper_of_product(address(A, index), address(B, index), address(C, index), C.rows, 0, C.rows);
    });
    mirror(C, count, [](std::int64_t /*matrix*/) { return AsItIs{}; });
  });
}

void HostLinearAlgebra::quadratics(Stream& stream, const Quadratic& coefficients, MatrixIn A, MatrixOut P,
                                   std::int64_t count) {
  stream.run([=, this] {
    const std::int64_t n = P.rows;
    each(count, [&](std::int64_t index) {
      upper_of_square(coefficients.c, address(A, index), Transpose::no, n, 0, address(P, index), n);
    });
    // The other terms on the way to the lower triangle.
    mirror(P, count, [=](std::int64_t index) {
      return [=, values = address(A, index)](std::int64_t i, std::int64_t j, float value) {
        return value + coefficients.b * values[i * n + j] + (i == j ? coefficients.a : 0.0f);
      };
    });
  });
}

std::int64_t HostLinearAlgebra::factorization_bytes(std::int64_t n) const { return host_factorization_bytes(n); }

void HostLinearAlgebra::eigh(Stream& stream, MatrixOut A, DevicePointer<float> values,
                             DevicePointer<std::int32_t> found, DevicePointer<std::byte> work) {
  stream.run([=] { found.raw()[0] = host_eigh(A.data.raw(), A.rows, values.raw(), work.raw()) ? 1 : 0; });
}

void HostLinearAlgebra::qr(Stream& stream, MatrixOut A, DevicePointer<std::byte> work) {
  stream.run([=] { host_qr(A.data.raw(), A.rows, work.raw()); });
}

}  // namespace canzona::optimized
