#include "optimized/host/host_linear_algebra.hpp"

#include <cblas.h>

#include <algorithm>

#include "optimized/host/factorizations.hpp"

namespace canzona::optimized {
namespace {

CBLAS_TRANSPOSE blas(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }
int width(std::int64_t size) { return static_cast<int>(size); }

template <class T>
T* address(const MatrixView<T>& stack, std::int64_t index) {
  return (stack.data + index * stack.size()).raw();
}

/// The upper triangle of an n × n matrix is cut into squares beside the diagonal, as large as can be, for gemm, and
/// small triangles on it: beside(row, col, rows, cols) and on(row, rows).
template <class Beside, class On>
void cut_triangle(std::int64_t begin, std::int64_t n, std::int64_t leaf, const Beside& beside, const On& on) {
  if (n <= leaf) {
    on(begin, n);
    return;
  }
  // Halves that are multiples of the widest vector.
  const std::int64_t half = (n / 2 + 15) / 16 * 16;
  beside(begin, begin + half, half, n - half);
  cut_triangle(begin, half, leaf, beside, on);
  cut_triangle(begin + half, n - half, leaf, beside, on);
}

/// The upper triangle of C ← alpha·A·Aᵀ + beta·C, or of AᵀA. gemm is faster than syrk, beside the diagonal.
void upper_of_square(float alpha, const float* A, Transpose a, std::int64_t k, float beta, float* C, std::int64_t n) {
  constexpr std::int64_t kLeaf = 256;
  const bool rows = a == Transpose::no;
  const int pitch = width(rows ? k : n);
  const auto part = [&](std::int64_t row) { return rows ? A + row * k : A + row; };
  cut_triangle(
      0, n, kLeaf,
      [&](std::int64_t row, std::int64_t col, std::int64_t height, std::int64_t length) {
        cblas_sgemm(CblasRowMajor, blas(a), rows ? CblasTrans : CblasNoTrans, width(height), width(length), width(k),
                    alpha, part(row), pitch, part(col), pitch, beta, C + row * n + col, width(n));
      },
      [&](std::int64_t row, std::int64_t height) {
        cblas_ssyrk(CblasRowMajor, CblasUpper, blas(a), width(height), width(k), alpha, part(row), pitch, beta,
                    C + row * n + row, width(n));
      });
}

/// The upper triangle of C ← A·B, n × n.
void upper_of_product(const float* A, const float* B, float* C, std::int64_t n) {
  constexpr std::int64_t kLeaf = 128;  // whose lower half is computed for nothing
  const auto multiply = [&](std::int64_t row, std::int64_t col, std::int64_t height, std::int64_t length) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, width(height), width(length), width(n), 1, A + row * n,
                width(n), B + col, width(n), 0, C + row * n + col, width(n));
  };
  cut_triangle(0, n, kLeaf, multiply,
               [&](std::int64_t row, std::int64_t height) { multiply(row, row, height, height); });
}

constexpr std::int64_t kTile = 16;

/// One tile of the upper triangle and its mirror image, by way of a copy: every line of the cache is met once.
template <class Finish>
void mirror_tile(float* C, std::int64_t n, std::int64_t row, std::int64_t col, const Finish& finish) {
  const std::int64_t rows = std::min(kTile, n - row);
  const std::int64_t cols = std::min(kTile, n - col);
  float tile[kTile][kTile];
  for (std::int64_t i = 0; i < rows; ++i) {
    float* own = C + (row + i) * n + col;
    if (row == col) {
      for (std::int64_t j = i; j < cols; ++j) tile[j][i] = own[j] = finish(row + i, col + j, own[j]);
    } else {
      for (std::int64_t j = 0; j < cols; ++j) own[j] = finish(row + i, col + j, own[j]);
      for (std::int64_t j = 0; j < cols; ++j) tile[j][i] = own[j];
    }
  }
  for (std::int64_t j = 0; j < cols; ++j) std::copy_n(tile[j], row == col ? j : rows, C + (col + j) * n + row);
}

float as_it_is(std::int64_t /*matrix*/, std::int64_t /*i*/, std::int64_t /*j*/, float value) { return value; }

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
void HostLinearAlgebra::mirror(MatrixOut C, std::int64_t count, const Finish& finish) {
  constexpr std::int64_t kStrip = 8 * kTile;  // rows of one piece
  const std::int64_t n = C.rows;
  const std::int64_t strips = (n + kStrip - 1) / kStrip;
  team_.run(count * strips, [&](std::int64_t piece) {
    const std::int64_t index = piece / strips;
    const std::int64_t begin = piece % strips * kStrip;
    const auto own = [&, index](std::int64_t i, std::int64_t j, float value) { return finish(index, i, j, value); };
    for (std::int64_t row = begin; row < std::min(begin + kStrip, n); row += kTile) {
      for (std::int64_t col = row; col < n; col += kTile) mirror_tile(address(C, index), n, row, col, own);
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
    mirror(C, count, as_it_is);
  });
}

void HostLinearAlgebra::commuting_products(Stream& stream, MatrixIn A, MatrixIn B, MatrixOut C, std::int64_t count) {
  stream.run([=, this] {
    each(count, [&](std::int64_t index) {
      upper_of_product(address(A, index), address(B, index), address(C, index), C.rows);
    });
    mirror(C, count, as_it_is);
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
    mirror(P, count, [=](std::int64_t index, std::int64_t i, std::int64_t j, float value) {
      return value + coefficients.b * address(A, index)[i * n + j] + (i == j ? coefficients.a : 0.0f);
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
