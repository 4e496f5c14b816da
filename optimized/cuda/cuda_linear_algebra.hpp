// Products by cuBLAS and factorizations by cuSOLVER.
#pragma once

#include "optimized/cuda/cuda_factorizations.hpp"
#include "optimized/cuda/cuda_products.hpp"

namespace canzona::optimized {

/// Calls are made for one stream at a time: the libraries' work memory is shared.
class CudaLinearAlgebra final : public CudaProducts<float, LinearAlgebra> {
 public:
  CudaLinearAlgebra(Device& device, const CudaSettings& settings)
      : CudaLinearAlgebra(device, settings.allows_tf32, choice_of(settings.symmetric)) {}

 private:
  CudaLinearAlgebra(Device& device, bool allows_tf32, const SymmetricChoice& symmetric);
  static SymmetricChoice choice_of(SymmetricWay way);  ///< on the calling thread's GPU

  MatrixProducts<double>& fp64() override { return fp64_; }
  MatrixProducts<Bf16>& bf16() override { return bf16_; }
  MatrixProducts<Fp16>& fp16() override { return fp16_; }
  Factorizations<double>& fp64_factorizations() override { return fp64_factorizations_; }
  Factorizations<float>& fp32_factorizations() override { return fp32_factorizations_; }

  CublasHandle blas_;
  CusolverHandle solver_;
  CudaProducts<double> fp64_;
  CudaProducts<Bf16> bf16_;
  CudaProducts<Fp16> fp16_;
  CudaFactorizations<double> fp64_factorizations_;
  CudaFactorizations<float> fp32_factorizations_;
};

}  // namespace canzona::optimized
