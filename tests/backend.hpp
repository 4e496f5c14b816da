// Which backend the tests of the engine run on: the host, or CUDA on the emulated GPU where they are built for it.
#pragma once

#include "optimized/engine/backend.hpp"
#if defined(CANZONA_EMULATED_GPU)
#include "tests/emulated_gpu/emulated_gpu.hpp"
#endif

namespace canzona::testing_support {

/// Under a sanitizer the emulated GPU takes seconds a run: there a few meshes stand for all, and deadlines wait.
#if defined(CANZONA_EMULATED_GPU) && (defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__))
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = false;
#endif

/// Under ThreadSanitizer, which sees nothing inside a BLAS, products are plain loops: seconds become minutes.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kHasPlainProducts = true;
#else
inline constexpr bool kHasPlainProducts = false;
#endif

/// For one launch, while none is under way: an emulated GPU forgets what was before.
inline optimized::ChosenBackend backend(const std::map<std::string, std::string>& options = {}) {
#if defined(CANZONA_EMULATED_GPU)
  emulated_gpu::reset({});
  const char* name = "cuda";
#else
  const char* name = "host";
#endif
  const optimized::Backend& found = optimized::Backends::instance().find(name);
  return {&found, Options(found.options, options, name)};
}

}  // namespace canzona::testing_support
