// Products of matrices by cuBLAS, in any element type.
#pragma once

#include <cublas_v2.h>

#include "optimized/cuda/symmetric_way.hpp"
#include "optimized/device/device.hpp"
#include "optimized/device/linear_algebra.hpp"

namespace canzona::optimized {

struct CudaSettings {
  bool allows_tf32 = false;  ///< products of fp32 may round what they read to TF32's 10 bits
  SymmetricWay symmetric = SymmetricWay::table;
};

/// cuBLAS with its work memory; calls are made for one stream at a time.
class CublasHandle {
 public:
  CublasHandle(Device& device, bool allows_tf32);
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;
  ~CublasHandle();

  cublasHandle_t on(Stream& stream);

 private:
  cublasHandle_t own_ = nullptr;
  Buffer workspace_;
};

/// Symmetric results are computed whole, or their upper triangle, and mirrored, so that they are symmetric bit by bit.
/// In two bytes a kernel of our own stands beside cuBLAS.
template <class T, class Base = MatrixProducts<T>>
class CudaProducts : public Base {
 public:
  using In = typename MatrixProducts<T>::In;
  using Out = typename MatrixProducts<T>::Out;
  using Scalar = typename MatrixProducts<T>::Scalar;

  CudaProducts(CublasHandle& blas, const SymmetricChoice& symmetric) : blas_(blas), symmetric_(symmetric) {}

  void products(Stream& stream, Scalar alpha, In A, Transpose a, In B, Transpose b, Scalar beta, Out C,
                std::int64_t count) override;
  void symmetric_products(Stream& stream, Scalar alpha, In A, Transpose a, Scalar beta, Out C,
                          std::int64_t count) override;
  void commuting_products(Stream& stream, In A, In B, Scalar beta, Out C, std::int64_t count) override;
  void quadratics(Stream& stream, Scalar b, Scalar c, In A, Out P, std::int64_t count) override;

 private:
  /// C ← alpha·L·Rᵀ + beta·D by the kernel, or Lᵀ·R where `transposed`; false, with nothing done, where that is
  /// cuBLAS's.
  bool by_tiles(Stream& stream, Scalar alpha, In L, In R, Transpose transposed, Scalar beta, In D, Out C,
                std::int64_t count);
  void mirror(Stream& stream, Out C, std::int64_t count);

  CublasHandle& blas_;
  SymmetricChoice symmetric_;
};

extern template class CudaProducts<double>;
extern template class CudaProducts<float, LinearAlgebra>;
extern template class CudaProducts<Bf16>;
extern template class CudaProducts<Fp16>;

}  // namespace canzona::optimized
