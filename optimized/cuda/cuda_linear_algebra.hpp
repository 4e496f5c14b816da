// Products by cuBLAS and factorizations by cuSOLVER.
#pragma once

#include <cublas_v2.h>
#include <cusolverDn.h>

#include "optimized/device/device.hpp"
#include "optimized/device/linear_algebra.hpp"

namespace canzona::optimized {

/// In fp32. Calls are made for one stream at a time: the libraries' work memory is shared. Symmetric results are
/// computed whole, or their upper triangle, and mirrored, so that they are symmetric bit by bit.
class CudaLinearAlgebra final : public LinearAlgebra {
 public:
  explicit CudaLinearAlgebra(Device& device);
  ~CudaLinearAlgebra() override;

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
  void use(Stream& stream);

  Device& device_;
  cublasHandle_t blas_ = nullptr;
  cusolverDnHandle_t solver_ = nullptr;
  Buffer workspace_;  // cuBLAS's
};

}  // namespace canzona::optimized
