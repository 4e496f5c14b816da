// Which BLAS the host device calls, and whether it knows the processor.
#pragma once

#include <string>

namespace canzona::optimized {

/// "OpenBLAS 0.3.21, Haswell kernels".
std::string blas_name();

/// What to do where the library took kernels without AVX2 for a processor that has it, as releases older than the
/// processor do; empty where it did not.
std::string blas_advice();

/// While one lives, calls of the library have `threads` threads of its own; before and after it, one. OpenBLAS holds
/// one number for the whole process, its pthread build (Debian's 0.3.21) has one pool that callers queue for, and the
/// pool goes on spinning for milliseconds after its work, in the way of everyone else's.
class BlasThreads {
 public:
  explicit BlasThreads(int threads);
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;
  ~BlasThreads();
};

}  // namespace canzona::optimized
