// Which BLAS the host device calls, and whether it knows the processor.
#pragma once

#include <string>

namespace canzona::optimized {

/// "OpenBLAS 0.3.21, Haswell kernels".
std::string blas_name();

/// What to do where the library took kernels without AVX2 for a processor that has it, as releases older than the
/// processor do; empty where it did not.
std::string blas_advice();

}  // namespace canzona::optimized
