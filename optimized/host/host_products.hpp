// Products of matrices in fp64, bf16 and fp16 on the host: right, not fast. fp32 is HostLinearAlgebra's own.
#pragma once

#include "optimized/device/linear_algebra.hpp"
#include "optimized/host/thread_team.hpp"

namespace canzona::optimized {

/// Two-byte matrices are widened tile by tile, multiplied in fp32, and rounded once. Symmetric results are computed
/// whole and mirrored.
template <class T>
class HostProducts final : public MatrixProducts<T> {
 public:
  using typename MatrixProducts<T>::In;
  using typename MatrixProducts<T>::Out;
  using typename MatrixProducts<T>::Scalar;

  explicit HostProducts(ThreadTeam& team) : team_(team) {}

  void products(Stream& stream, Scalar alpha, In A, Transpose a, In B, Transpose b, Scalar beta, Out C,
                std::int64_t count) override;
  void symmetric_products(Stream& stream, Scalar alpha, In A, Transpose a, Scalar beta, Out C,
                          std::int64_t count) override;
  void commuting_products(Stream& stream, In A, In B, Scalar beta, Out C, std::int64_t count) override;
  void quadratics(Stream& stream, Scalar b, Scalar c, In A, Out P, std::int64_t count) override;

 private:
  void mirror(Stream& stream, Out C, std::int64_t count);

  ThreadTeam& team_;
};

extern template class HostProducts<double>;
extern template class HostProducts<Bf16>;
extern template class HostProducts<Fp16>;

}  // namespace canzona::optimized
