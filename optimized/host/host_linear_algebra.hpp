// Products in fp32 by OpenBLAS and factorizations by LAPACK on the threads of a host device.
#pragma once

#include "optimized/device/linear_algebra.hpp"
#include "optimized/host/factorizations.hpp"
#include "optimized/host/host_products.hpp"
#include "optimized/host/thread_team.hpp"

namespace canzona::optimized {

/// The team shares a product, or the matrices of a stack of them. Every call of the library has one thread, except in
/// the factorizations of a team of several.
class HostLinearAlgebra final : public LinearAlgebra {
 public:
  explicit HostLinearAlgebra(ThreadTeam& team);

  void products(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b, float beta, MatrixOut C,
                std::int64_t count) override;
  void symmetric_products(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta, MatrixOut C,
                          std::int64_t count) override;
  void commuting_products(Stream& stream, MatrixIn A, MatrixIn B, float beta, MatrixOut C, std::int64_t count) override;
  void quadratics(Stream& stream, float b, float c, MatrixIn A, MatrixOut P, std::int64_t count) override;

 private:
  /// compute(index, team) for every matrix of a stack; the team may share the work on one matrix.
  template <class Compute>
  void each(Stream& stream, std::int64_t count, Compute compute);

  MatrixProducts<double>& fp64() override { return fp64_; }
  MatrixProducts<Bf16>& bf16() override { return bf16_; }
  MatrixProducts<Fp16>& fp16() override { return fp16_; }
  Factorizations<double>& fp64_factorizations() override { return fp64_factorizations_; }
  Factorizations<float>& fp32_factorizations() override { return fp32_factorizations_; }

  ThreadTeam& team_;
  ThreadTeam alone_{1};
  HostProducts<double> fp64_{team_};
  HostProducts<Bf16> bf16_{team_};
  HostProducts<Fp16> fp16_{team_};
  HostFactorizations<double> fp64_factorizations_{team_};
  HostFactorizations<float> fp32_factorizations_{team_};
};

}  // namespace canzona::optimized
