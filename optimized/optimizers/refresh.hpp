// What optimizers with preconditioners share on a device: the count of refreshes that failed, and small functors. As
// reference/optimizers/refresh.hpp, for shampoo.cpp, soap.cpp and inverse_root.cpp.
#pragma once

#include <cmath>

#include "optimized/optimizers/elementwise.hpp"
#include "optimized/optimizers/optimizer.hpp"

namespace canzona::optimized {

/// Made<double> or Made<float>, as the arithmetic asks for: what is factorized is not rounded to two bytes.
template <template <class> class Made>
std::unique_ptr<MatrixOptimizer> make_wide(const Preparation& own) {
  if (own.arithmetic == DType::fp64) return std::make_unique<Made<double>>(own);
  return std::make_unique<Made<float>>(own);
}

/// *total ← *total + *flag, which begins again.
struct CountFlag {
  std::int32_t* flag;
  std::int64_t* total;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    *total += *flag;
    *flag = 0;
  }
};

/// Counts the matrices whose refresh failed on one side or more: a flag that sides set, a total, and its copy on the
/// host.
class FailedRefreshes {
 public:
  explicit FailedRefreshes(Device& device)
      : device_(device),
        flag_(device.allocate_elements<std::int32_t>(1)),
        total_(device.allocate_elements<std::int64_t>(1)),
        known_(device.allocate_on_host(sizeof(std::int64_t))) {}

  /// 0 until a side of the current matrix fails.
  DevicePointer<std::int32_t> flag() const { return flag_.as<std::int32_t>(); }

  /// All sides of a matrix have been refreshed.
  void end_matrix(Stream& stream) { launch(stream, 1, CountFlag{flag().raw(), total_.as<std::int64_t>().raw()}); }

  /// All matrices have. The host knows how many failed when the stream is idle.
  void end_refresh(Stream& stream) {
    device_.copy(stream, total_.as<std::int64_t>().raw(), known_.as<std::int64_t>().raw(), sizeof(std::int64_t));
  }

  std::int64_t known() const { return *known_.as<std::int64_t>().raw(); }

 private:
  Device& device_;
  Buffer flag_;
  Buffer total_;
  Buffer known_;  ///< on the host
};

template <class T>
struct SetIdentity {
  std::int64_t cols;
  T* matrix;
  CANZONA_KERNEL void operator()(std::int64_t i) { matrix[i] = i % (cols + 1) == 0 ? 1 : 0; }
};

/// A ← A + value·I; i counts rows.
template <class T>
struct AddToDiagonal {
  T value;
  std::int64_t cols;
  T* matrix;
  CANZONA_KERNEL void operator()(std::int64_t i) { matrix[i * cols + i] += value; }
};

/// to ← from where *good is not 0.
template <class T>
struct CopyIf {
  const std::int32_t* good;
  const T* from;
  T* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = *good != 0 ? from[i] : to[i]; }
};

}  // namespace canzona::optimized
