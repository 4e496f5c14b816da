// Eigenvectors and orthogonal factors by cuSOLVER.
#pragma once

#include <cusolverDn.h>

#include "optimized/device/device.hpp"
#include "optimized/device/linear_algebra.hpp"

namespace canzona::optimized {

/// cuSOLVER; calls are made for one stream at a time.
class CusolverHandle {
 public:
  CusolverHandle();
  CusolverHandle(const CusolverHandle&) = delete;
  CusolverHandle& operator=(const CusolverHandle&) = delete;
  ~CusolverHandle();

  cusolverDnHandle_t on(Stream& stream);
  /// For what needs no stream.
  cusolverDnHandle_t get() const { return own_; }

 private:
  cusolverDnHandle_t own_ = nullptr;
};

template <class T>
class CudaFactorizations final : public Factorizations<T> {
 public:
  CudaFactorizations(Device& device, CusolverHandle& solver) : device_(device), solver_(solver) {}

  std::int64_t bytes(std::int64_t n) const override;
  void eigh(Stream& stream, MatrixView<T> A, DevicePointer<T> values, DevicePointer<std::int32_t> found,
            DevicePointer<std::byte> work) override;
  void qr(Stream& stream, MatrixView<T> A, DevicePointer<std::byte> work) override;

 private:
  Device& device_;
  CusolverHandle& solver_;
};

extern template class CudaFactorizations<double>;
extern template class CudaFactorizations<float>;

}  // namespace canzona::optimized
