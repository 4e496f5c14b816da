#include "optimized/host/host_linear_algebra.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace canzona::optimized {
namespace {

CBLAS_TRANSPOSE blas(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }
int width(std::int64_t size) { return static_cast<int>(size); }

template <class T>
T* address(const MatrixView<T>& stack, std::int64_t index) {
  return (stack.data + index * stack.size()).raw();
}

/// A part of C ← alpha·op(A)·op(B) + beta·C: its rows and columns, the inner length, and the widths of whole matrices.
struct Part {
  std::int64_t rows, cols, inner;
  float alpha, beta;
  Transpose a, b;
  std::int64_t width_a, width_b, width_c;
};

void multiply(const Part& part, const float* A, const float* B, float* C) {
  cblas_sgemm(CblasRowMajor, blas(part.a), blas(part.b), width(part.rows), width(part.cols), width(part.inner),
              part.alpha, A, width(part.width_a), B, width(part.width_b), part.beta, C, width(part.width_c));
}

/// compute(begin, size) of pieces of [0, n), one for each thread of the team that is worth waking; `where(share)` is
/// the end of the part of [0, 1] that has this share of the work.
template <class Where, class Compute>
void in_pieces(ThreadTeam& team, std::int64_t n, double flops, const Where& where, const Compute& compute) {
  constexpr double kSmallest = 1 << 25;  // FLOPs: some hundred microseconds
  constexpr std::int64_t kVector = 16;
  const auto pieces = std::clamp<std::int64_t>(static_cast<std::int64_t>(flops / kSmallest), 1, team.size());
  const auto end = [&](std::int64_t piece) {
    if (piece == pieces) return n;
    const double share = static_cast<double>(piece) / static_cast<double>(pieces);
    return static_cast<std::int64_t>(static_cast<double>(n) * where(share)) / kVector * kVector;
  };
  team.run(pieces, [&](std::int64_t piece) { compute(end(piece), end(piece + 1) - end(piece)); });
}

double of_rectangle(double share) { return share; }
/// Of an upper triangle, whose rows grow shorter.
double of_triangle(double share) { return 1 - std::sqrt(1 - share); }

/// The whole of it, cut along its longer side.
void multiply(ThreadTeam& team, const Part& whole, const float* A, const float* B, float* C) {
  const double flops = 2.0 * static_cast<double>(whole.rows) * static_cast<double>(whole.cols * whole.inner);
  const bool by_rows = whole.rows >= whole.cols;
  in_pieces(team, by_rows ? whole.rows : whole.cols, flops, of_rectangle, [&](std::int64_t begin, std::int64_t size) {
    Part part = whole;
    (by_rows ? part.rows : part.cols) = size;
    const std::int64_t from_a = part.a == Transpose::no ? begin * part.width_a : begin;
    const std::int64_t from_b = part.b == Transpose::no ? begin : begin * part.width_b;
    multiply(part, by_rows ? A + from_a : A, by_rows ? B : B + from_b, C + begin * (by_rows ? part.width_c : 1));
  });
}

/// The upper triangle of C ← alpha·A·Aᵀ + beta·C, or of AᵀA, of n × n.
void upper_of_square(ThreadTeam& team, float alpha, const float* A, Transpose a, std::int64_t k, float beta, float* C,
                     std::int64_t n) {
  const std::int64_t width_a = a == Transpose::no ? k : n;
  const auto from = [&](std::int64_t row) { return A + row * (a == Transpose::no ? k : 1); };
  const double flops = static_cast<double>(n) * static_cast<double>(n * k);
  in_pieces(team, n, flops, of_triangle, [&](std::int64_t begin, std::int64_t size) {
    float* diagonal = C + begin * n + begin;
    cblas_ssyrk(CblasRowMajor, CblasUpper, blas(a), width(size), width(k), alpha, from(begin), width(width_a), beta,
                diagonal, width(n));
    const std::int64_t end = begin + size;
    const Transpose b = a == Transpose::no ? Transpose::yes : Transpose::no;
    const Part beside{size, n - end, k, alpha, beta, a, b, width_a, width_a, n};
    if (end < n) multiply(beside, from(begin), from(end), diagonal + size);
  });
}

/// The upper triangle of C[begin…][begin…] ← A·B + beta·C, `size` rows of it, of n × n matrices: cut into squares
/// beside the diagonal, as large as can be, for gemm, and small ones on it, whose lower half is computed for nothing.
void upper_of_product(const float* A, const float* B, float beta, float* C, std::int64_t n, std::int64_t begin,
                      std::int64_t size) {
  constexpr std::int64_t kLeaf = 128;
  const auto rectangle = [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    multiply(Part{rows, cols, n, 1, beta, Transpose::no, Transpose::no, n, n, n}, A + row * n, B + col,
             C + row * n + col);
  };
  if (size <= kLeaf) return rectangle(begin, size, begin, size);
  const std::int64_t half = (size / 2 + 15) / 16 * 16;  // a multiple of the widest vector
  rectangle(begin, half, begin + half, size - half);
  upper_of_product(A, B, beta, C, n, begin, half);
  upper_of_product(A, B, beta, C, n, begin + half, size - half);
}

/// The same of all of C, by the team.
void upper_of_product(ThreadTeam& team, const float* A, const float* B, float beta, float* C, std::int64_t n) {
  const double flops = static_cast<double>(n) * static_cast<double>(n * n);
  in_pieces(team, n, flops, of_triangle, [&](std::int64_t begin, std::int64_t size) {
    const std::int64_t end = begin + size;
    const Part beside{size, n - end, n, 1, beta, Transpose::no, Transpose::no, n, n, n};
    upper_of_product(A, B, beta, C, n, begin, size);
    if (end < n) multiply(beside, A + begin * n, B + end, C + begin * n + end);
  });
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

/// C[j][i] ← C[i][j] ← finish(i, j, C[i][j]) of the upper triangle.
template <class Finish>
void mirror(ThreadTeam& team, float* C, std::int64_t n, const Finish& finish) {
  constexpr std::int64_t kStrip = 4 * kTile;  // rows of one piece
  team.run((n + kStrip - 1) / kStrip, [&](std::int64_t strip) {
    for (std::int64_t row = strip * kStrip; row < std::min((strip + 1) * kStrip, n); row += kTile) {
      for (std::int64_t col = row; col < n; col += kTile) mirror_tile(C, n, row, col, finish);
    }
  });
}

}  // namespace

HostLinearAlgebra::HostLinearAlgebra(ThreadTeam& team) : team_(team) { openblas_set_num_threads(1); }

template <class Compute>
void HostLinearAlgebra::each(Stream& stream, std::int64_t count, Compute compute) {
  if (count == 1) return stream.run([this, compute] { compute(0, team_); });
  stream.run_each(count, [this, compute](std::int64_t index) { compute(index, alone_); });
}

void HostLinearAlgebra::products(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b,
                                 float beta, MatrixOut C, std::int64_t count) {
  const std::int64_t k = a == Transpose::yes ? A.rows : A.cols;
  const Part whole{C.rows, C.cols, k, alpha, beta, a, b, A.cols, B.cols, C.cols};
  each(stream, count, [=](std::int64_t index, ThreadTeam& team) {
    multiply(team, whole, address(A, index), address(B, index), address(C, index));
  });
}

void HostLinearAlgebra::symmetric_products(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta,
                                           MatrixOut C, std::int64_t count) {
  const std::int64_t k = a == Transpose::yes ? A.rows : A.cols;
  each(stream, count, [=](std::int64_t index, ThreadTeam& team) {
    upper_of_square(team, alpha, address(A, index), a, k, beta, address(C, index), C.rows);
    mirror(team, address(C, index), C.rows, AsItIs{});
  });
}

void HostLinearAlgebra::commuting_products(Stream& stream, MatrixIn A, MatrixIn B, float beta, MatrixOut C,
                                           std::int64_t count) {
  each(stream, count, [=](std::int64_t index, ThreadTeam& team) {
    upper_of_product(team, address(A, index), address(B, index), beta, address(C, index), C.rows);
    mirror(team, address(C, index), C.rows, AsItIs{});
  });
}

void HostLinearAlgebra::quadratics(Stream& stream, float b, float c, MatrixIn A, MatrixOut P, std::int64_t count) {
  each(stream, count, [=](std::int64_t index, ThreadTeam& team) {
    const std::int64_t n = P.rows;
    const float* values = address(A, index);
    upper_of_square(team, c, values, Transpose::no, n, 0, address(P, index), n);
    // The other term on the way to the lower triangle.
    mirror(team, address(P, index), n,
           [=](std::int64_t i, std::int64_t j, float value) { return value + b * values[i * n + j]; });
  });
}

}  // namespace canzona::optimized
