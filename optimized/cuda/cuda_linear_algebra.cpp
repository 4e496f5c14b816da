#include "optimized/cuda/cuda_linear_algebra.hpp"

#include "optimized/cuda/check.hpp"

namespace canzona::optimized {

// The base keeps a reference to what is made after it.
CudaLinearAlgebra::CudaLinearAlgebra(Device& device, bool allows_tf32, const SymmetricChoice& symmetric)
    : CudaProducts(blas_, symmetric),
      blas_(device, allows_tf32),
      fp64_(blas_, symmetric),
      bf16_(blas_, symmetric),
      fp16_(blas_, symmetric),
      fp64_factorizations_(device, solver_),
      fp32_factorizations_(device, solver_) {}

SymmetricChoice CudaLinearAlgebra::choice_of(SymmetricWay way) {
  int device = 0, generation = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device));
  return {way, generation};
}

}  // namespace canzona::optimized
