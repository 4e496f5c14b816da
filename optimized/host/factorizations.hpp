// Eigenvectors and orthogonal factors of square row-major fp32 matrices by LAPACK, in memory that was taken before. For
// the host's linear algebra.
#pragma once

#include <cstddef>
#include <cstdint>

namespace canzona::optimized {

/// LAPACK's ssyevd or dsyevd: all eigenvalues, ascending, and eigenvectors of a symmetric matrix.
template <class Scalar>
using SymmetricSolver = void(const char* job, const char* triangle, const int* n, Scalar* a, const int* lda,
                             Scalar* values, Scalar* work, const int* work_size, int* integers,
                             const int* integers_size, int* info);

/// The solver that is tried first, and the one for where it fails.
struct SymmetricSolvers {
  SymmetricSolver<float>* single;
  SymmetricSolver<double>* twice;
};

SymmetricSolvers lapack_solvers();

/// Bytes of work memory, aligned for doubles, that either function needs for n × n. Throws InputError where LAPACK's
/// 32-bit sizes do not hold it.
std::int64_t host_factorization_bytes(std::int64_t n);

/// LinearAlgebra::eigh: A becomes V. False where there was none.
bool host_eigh(float* A, std::int64_t n, float* values, std::byte* work,
               const SymmetricSolvers& solvers = lapack_solvers());

/// LinearAlgebra::qr: A becomes Q.
void host_qr(float* A, std::int64_t n, std::byte* work);

}  // namespace canzona::optimized
