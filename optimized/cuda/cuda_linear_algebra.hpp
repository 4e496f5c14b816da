// Products by cuBLAS and factorizations by cuSOLVER.
#pragma once

#include <cusolverDn.h>

#include "optimized/cuda/cuda_products.hpp"

namespace canzona::optimized {

/// Calls are made for one stream at a time: the libraries' work memory is shared.
class CudaLinearAlgebra final : public CudaProducts<float, LinearAlgebra> {
 public:
  CudaLinearAlgebra(Device& device, const CudaSettings& settings)
      : CudaLinearAlgebra(device, settings.allows_tf32, choice_of(settings.symmetric)) {}
  ~CudaLinearAlgebra() override;

  std::int64_t factorization_bytes(std::int64_t n) const override;
  void eigh(Stream& stream, MatrixOut A, DevicePointer<float> values, DevicePointer<std::int32_t> found,
            DevicePointer<std::byte> work) override;
  void qr(Stream& stream, MatrixOut A, DevicePointer<std::byte> work) override;

 private:
  CudaLinearAlgebra(Device& device, bool allows_tf32, const SymmetricChoice& symmetric);
  static SymmetricChoice choice_of(SymmetricWay way);  ///< on the calling thread's GPU

  MatrixProducts<double>& fp64() override { return fp64_; }
  MatrixProducts<Bf16>& bf16() override { return bf16_; }
  MatrixProducts<Fp16>& fp16() override { return fp16_; }

  Device& device_;
  CublasHandle blas_;
  cusolverDnHandle_t solver_ = nullptr;
  CudaProducts<double> fp64_;
  CudaProducts<Bf16> bf16_;
  CudaProducts<Fp16> fp16_;
};

}  // namespace canzona::optimized
