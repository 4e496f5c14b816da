#include "optimized/host/factorizations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "optimized/host/blas.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
/// LAPACK's ?gelqf: A = LQ, L and the reflectors of Q in its place.
template <class T>
using Factor = void(const int* m, const int* n, T* a, const int* lda, T* tau, T* work, const int* work_size, int* info);
/// LAPACK's ?orglq: Q of its reflectors.
template <class T>
using Generate = void(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau, T* work,
                      const int* work_size, int* info);
}  // namespace canzona::optimized

// LAPACK as OpenBLAS exports it. Column-major: of a symmetric matrix that is the same, of others the transpose.
extern "C" {
canzona::optimized::SymmetricSolver<float> ssyevd_;
canzona::optimized::SymmetricSolver<double> dsyevd_;
canzona::optimized::Factor<float> sgelqf_;
canzona::optimized::Factor<double> dgelqf_;
canzona::optimized::Generate<float> sorglq_;
canzona::optimized::Generate<double> dorglq_;
}

namespace canzona::optimized {
namespace {

/// Of ?syevd with eigenvectors: 1 + 6n + 2n² numbers and 3 + 5n integers, the least that its documentation allows. More
/// helps only its reduction to tridiagonal form, whose blocks fit into 2n² for all but the smallest n.
int symmetric_work(int n) { return 1 + 6 * n + 2 * n * n; }
int symmetric_integers(int n) { return 3 + 5 * n; }

/// Of ?gelqf and ?orglq: n times the block size, which ilaenv puts at 32 (64 in OpenBLAS).
constexpr int kBlock = 64;
int orthogonal_work(int n) { return n * kBlock; }

/// Doubles before the solver's own: a matrix in fp32 and its eigenvalues, in fp64.
template <class T>
std::int64_t repeated(std::int64_t n) {
  return std::is_same_v<T, double> ? 0 : n * n + n;
}

/// Work memory of eigh: what fp32 is solved again with, the solver's numbers in either precision, its integers.
template <class T>
struct SymmetricWork {
  SymmetricWork(std::byte* work, std::int64_t n) {
    matrix = reinterpret_cast<double*>(work);
    values = matrix + n * n;
    twice = matrix + repeated<T>(n);
    single = reinterpret_cast<float*>(twice);
    integers = reinterpret_cast<int*>(twice + symmetric_work(static_cast<int>(n)));
  }
  double* matrix;
  double* values;
  double* twice;
  float* single;
  int* integers;
};

template <class T>
bool all_finite(const T* values, std::int64_t count) {
  return std::all_of(values, values + count, [](T value) { return std::isfinite(value); });
}

template <class T>
bool solve(SymmetricSolver<T>* solver, T* A, std::int64_t size, T* values, T* work, int* integers) {
  const int n = static_cast<int>(size);
  const int work_size = symmetric_work(n);
  const int integers_size = symmetric_integers(n);
  int info = 0;
  solver("V", "U", &n, A, &n, values, work, &work_size, integers, &integers_size, &info);
  return info == 0 && all_finite(values, size) && all_finite(A, size * size);
}

/// LAPACK leaves eigenvectors in the columns of its column-major order.
template <class T>
void transpose_in_place(T* A, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i + 1; j < n; ++j) std::swap(A[i * n + j], A[j * n + i]);
  }
}

Factor<float>* factor_of(const float*) { return &sgelqf_; }
Factor<double>* factor_of(const double*) { return &dgelqf_; }
Generate<float>* generate_of(const float*) { return &sorglq_; }
Generate<double>* generate_of(const double*) { return &dorglq_; }

}  // namespace

SymmetricSolvers lapack_solvers() { return {&ssyevd_, &dsyevd_}; }

template <class T>
std::int64_t host_factorization_bytes(std::int64_t n) {
  constexpr std::int64_t kLongest = 32766;  // 1 + 6n + 2n² ≤ 2³¹ − 1
  if (n > kLongest) {
    throw InputError("", "the side of a matrix to factorize", fmt::format("{}", n),
                     fmt::format("up to {}, for LAPACK's 32-bit sizes", kLongest));
  }
  const int side = static_cast<int>(n);
  const std::int64_t doubles = repeated<T>(n) + symmetric_work(side);
  const auto eigh = static_cast<std::int64_t>(sizeof(double)) * doubles +
                    static_cast<std::int64_t>(sizeof(int)) * symmetric_integers(side);
  const auto qr = static_cast<std::int64_t>(sizeof(T)) * (n + orthogonal_work(side));
  return std::max(eigh, qr);
}
template std::int64_t host_factorization_bytes<float>(std::int64_t n);
template std::int64_t host_factorization_bytes<double>(std::int64_t n);

bool host_eigh(float* A, std::int64_t n, float* values, std::byte* work, const SymmetricSolvers& solvers) {
  const std::int64_t numel = n * n;
  if (!all_finite(A, numel)) return false;
  const SymmetricWork<float> own(work, n);
  std::copy(A, A + numel, own.matrix);  // the solver spoils its input
  if (solve(solvers.single, A, n, values, own.single, own.integers)) {
    transpose_in_place(A, n);
    return true;
  }
  if (!solve(solvers.twice, own.matrix, n, own.values, own.twice, own.integers)) return false;
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(own.values[i]);
  for (std::int64_t i = 0; i < numel; ++i) A[i] = static_cast<float>(own.matrix[i]);
  transpose_in_place(A, n);
  return all_finite(values, n) && all_finite(A, numel);
}

bool host_eigh(double* A, std::int64_t n, double* values, std::byte* work, const SymmetricSolvers& solvers) {
  if (!all_finite(A, n * n)) return false;
  const SymmetricWork<double> own(work, n);
  if (!solve(solvers.twice, A, n, values, own.twice, own.integers)) return false;
  transpose_in_place(A, n);
  return true;
}

template <class T>
void host_qr(T* A, std::int64_t n, std::byte* work) {
  // Row-major A = QR is column-major Aᵀ = RᵀQᵀ: an LQ decomposition, whose Q there is Qᵀ here.
  const int side = static_cast<int>(n);
  const int size = orthogonal_work(side);
  T* tau = reinterpret_cast<T*>(work);
  int info = 0;
  factor_of(A)(&side, &side, A, &side, tau, tau + n, &size, &info);
  generate_of(A)(&side, &side, &side, A, &side, tau, tau + n, &size, &info);
}
template void host_qr(float* A, std::int64_t n, std::byte* work);
template void host_qr(double* A, std::int64_t n, std::byte* work);

template <class T>
void HostFactorizations<T>::eigh(Stream& stream, MatrixView<T> A, DevicePointer<T> values,
                                 DevicePointer<std::int32_t> found, DevicePointer<std::byte> work) {
  stream.run([=, this] {
    const BlasThreads lapack(team_.size());
    found.raw()[0] = host_eigh(A.data.raw(), A.rows, values.raw(), work.raw()) ? 1 : 0;
  });
}

template <class T>
void HostFactorizations<T>::qr(Stream& stream, MatrixView<T> A, DevicePointer<std::byte> work) {
  stream.run([=, this] {
    const BlasThreads lapack(team_.size());
    host_qr(A.data.raw(), A.rows, work.raw());
  });
}

template class HostFactorizations<float>;
template class HostFactorizations<double>;

}  // namespace canzona::optimized
