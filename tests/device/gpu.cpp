// Without a GPU every test of this program is skipped, with the reason.
#include <gtest/gtest.h>

#include "optimized/cuda/cuda_device.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

class NeedsGpu : public ::testing::Environment {
  void SetUp() override {
    try {
      count_gpus();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};
[[maybe_unused]] const auto* const needs_gpu = ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace canzona::optimized
