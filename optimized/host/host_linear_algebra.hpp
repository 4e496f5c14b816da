// Products by OpenBLAS and factorizations by LAPACK on the threads of a host device.
#pragma once

#include "optimized/device/linear_algebra.hpp"
#include "optimized/host/thread_team.hpp"

namespace canzona::optimized {

/// One product runs on as many threads as the team has; a stack of them runs matrices side by side, each on one thread.
/// OpenBLAS holds one number of threads for the whole process, which the team's size becomes. Its pthread build
/// (Debian's 0.3.21) does not see that it is called by one of several threads: calls that are to use more than one
/// thread queue for its only pool, so the number is 1 while matrices stand side by side. With a team of 1 it never
/// changes.
class HostLinearAlgebra final : public LinearAlgebra {
 public:
  explicit HostLinearAlgebra(ThreadTeam& team);

  void products(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b, float beta, MatrixOut C,
                std::int64_t count) override;
  void symmetric_products(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta, MatrixOut C,
                          std::int64_t count) override;
  void commuting_products(Stream& stream, MatrixIn A, MatrixIn B, MatrixOut C, std::int64_t count) override;
  void quadratics(Stream& stream, const Quadratic& coefficients, MatrixIn A, MatrixOut P, std::int64_t count) override;

  std::int64_t factorization_bytes(std::int64_t n) const override;
  void eigh(Stream& stream, MatrixOut A, DevicePointer<float> values, DevicePointer<std::int32_t> found,
            DevicePointer<std::byte> work) override;
  void qr(Stream& stream, MatrixOut A, DevicePointer<std::byte> work) override;

 private:
  /// compute(index) for every matrix of a stack.
  template <class Compute>
  void each(std::int64_t count, const Compute& compute);
  /// C[j][i] ← C[i][j] ← finish(i, j, C[i][j]) of the upper triangle of every matrix of a stack, finish being
  /// finish_of(matrix).
  template <class Finish>
  void mirror(MatrixOut C, std::int64_t count, const Finish& finish_of);

  ThreadTeam& team_;
};

}  // namespace canzona::optimized
