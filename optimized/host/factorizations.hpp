// Eigenvectors and orthogonal factors of square row-major matrices by LAPACK, in memory that was taken before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/device/linear_algebra.hpp"
#include "optimized/host/thread_team.hpp"

namespace canzona::optimized {

/// LAPACK's ssyevd or dsyevd: all eigenvalues, ascending, and eigenvectors of a symmetric matrix.
template <class T>
using SymmetricSolver = void(const char* job, const char* triangle, const int* n, T* a, const int* lda, T* values,
                             T* work, const int* work_size, int* integers, const int* integers_size, int* info);

/// Of fp32, and of fp64 and where the other fails.
struct SymmetricSolvers {
  SymmetricSolver<float>* single;
  SymmetricSolver<double>* twice;
};

SymmetricSolvers lapack_solvers();

/// Bytes of work memory, aligned for doubles, that either function needs for n × n of T, double or float. Throws
/// InputError where LAPACK's 32-bit sizes do not hold it.
template <class T>
std::int64_t host_factorization_bytes(std::int64_t n);

/// Factorizations<T>::eigh: A becomes V. False where there was none.
bool host_eigh(float* A, std::int64_t n, float* values, std::byte* work,
               const SymmetricSolvers& solvers = lapack_solvers());
bool host_eigh(double* A, std::int64_t n, double* values, std::byte* work,
               const SymmetricSolvers& solvers = lapack_solvers());

/// Factorizations<T>::qr: A becomes Q.
template <class T>
void host_qr(T* A, std::int64_t n, std::byte* work);

/// On the threads of a host device.
template <class T>
class HostFactorizations final : public Factorizations<T> {
 public:
  explicit HostFactorizations(ThreadTeam& team) : team_(team) {}

  std::int64_t bytes(std::int64_t n) const override { return host_factorization_bytes<T>(n); }
  void eigh(Stream& stream, MatrixView<T> A, DevicePointer<T> values, DevicePointer<std::int32_t> found,
            DevicePointer<std::byte> work) override;
  void qr(Stream& stream, MatrixView<T> A, DevicePointer<std::byte> work) override;

 private:
  ThreadTeam& team_;
};

}  // namespace canzona::optimized
