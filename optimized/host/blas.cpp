#include "optimized/host/blas.hpp"

#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace canzona::optimized {

std::string blas_name() {
  // "OpenBLAS 0.3.21 DYNAMIC_ARCH …"
  const std::string config = openblas_get_config();
  const std::size_t first = config.find(' ');
  const std::size_t second = config.find(' ', first + 1);
  return fmt::format("{}, {} kernels", config.substr(0, second), openblas_get_corename());
}

std::string blas_advice() {
#if defined(__x86_64__)
  // OpenBLAS's names of x86 kernels that came before AVX2.
  constexpr std::array kOld{"Prescott",    "Core2",  "Penryn",    "Dunnington", "Nehalem",
                            "Sandybridge", "Atom",   "Athlon",    "Opteron",    "Opteron_SSE3",
                            "Barcelona",   "Bobcat", "Bulldozer", "Piledriver"};
  const std::string core = openblas_get_corename();
  if (!__builtin_cpu_supports("avx2") || std::find(kOld.begin(), kOld.end(), core) == kOld.end()) return {};
  return fmt::format(
      "this OpenBLAS does not know the processor and runs its {} kernels: set OPENBLAS_CORETYPE={} for "
      "several times the speed",
      core, __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell");
#else
  return {};
#endif
}

BlasThreads::BlasThreads(int threads) { openblas_set_num_threads(threads); }

BlasThreads::~BlasThreads() { openblas_set_num_threads(1); }

}  // namespace canzona::optimized
