// Memory: poison, quarantine, limit, and copies.
#include <cmath>
#include <cstdint>

#include "tests/emulated_gpu/test_support.hpp"

namespace canzona::emulated_gpu {
namespace {

using Memory = EmulatedGpu;

TEST_F(Memory, IsNanWhenNew) {
  const TestStream stream;
  const auto* values = device_array<float>(10);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values) % 256, 0U);
  for (const float value : fetch(values, 10, stream)) EXPECT_TRUE(std::isnan(value));
}

#ifndef __SANITIZE_ADDRESS__
TEST_F(Memory, IsNanOnceFreed) {
  const TestStream stream;
  auto* values = device_array<float>(10);
  launch(stream, [=] { values[3] = 1; });
  EXPECT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_TRUE(std::isnan(values[3]));
}
#else
TEST_F(Memory, IsPoisonedOnceFreed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto* values = device_array<float>(10);
  EXPECT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_DEATH(static_cast<volatile float*>(values)[3] = 1, "use-after-poison");
}
#endif

TEST_F(Memory, IsFreedAfterTheDevicesStreams) {
  const TestStream stream;
  auto* values = device_array<float>(10);
  float seen = 0;
  launch_pause(stream, 5);
  launch(stream, [=, &seen] { seen = values[0] = 1; });
  EXPECT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_EQ(seen, 1);
}

TEST_F(Memory, IsCounted) {
  auto* values = device_array<float>(10);
  void* pinned = nullptr;
  EXPECT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  EXPECT_EQ(live_allocations(), 2);
  EXPECT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(live_allocations(), 0);
  EXPECT_EQ(allocations(), 2);
}

TEST_F(Memory, IsNotFreedTwice) {
  auto* values = device_array<float>(10);
  EXPECT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_EQ(cudaFree(values), cudaErrorInvalidValue);
  expect_complaint("cudaFree");
}

TEST_F(Memory, OfUnknownAddressIsNotFreed) {
  float own = 0;
  EXPECT_EQ(cudaFree(&own), cudaErrorInvalidValue);
  expect_complaint("cudaFree");
  EXPECT_EQ(cudaFree(device_array<float>(10) + 1), cudaErrorInvalidValue);
  expect_complaint("cudaFree");
}

TEST_F(Memory, HasALimit) {
  start({.memory_bytes = 1000});
  auto* first = device_array<std::byte>(600);
  void* second = nullptr;
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 400U);
  EXPECT_EQ(total, 1000U);
  EXPECT_EQ(cudaMalloc(&second, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 1000), cudaSuccess);
  cudaSetDevice(1);
  EXPECT_EQ(cudaMalloc(&second, 1000), cudaSuccess);
}

using Copies = EmulatedGpu;

TEST_F(Copies, GoBothWaysAndAcrossDevices) {
  const TestStream stream;
  const std::vector<int> values{1, 2, 3};
  const int* first = upload(values, stream);
  cudaSetDevice(1);
  auto* second = device_array<int>(3);
  EXPECT_EQ(cudaMemcpyAsync(second, first, 12, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  EXPECT_EQ(fetch(second, 3, stream), values);
  EXPECT_EQ(cudaMemsetAsync(const_cast<int*>(first), 0, 8, stream), cudaSuccess);
  EXPECT_EQ(fetch(first, 3, stream), (std::vector<int>{0, 0, 3}));
  std::vector<int> back(3);
  EXPECT_EQ(cudaMemcpyAsync(back.data(), second, 12, cudaMemcpyDefault, stream), cudaSuccess);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(back, values);
}

TEST_F(Copies, TakeRowsOfAPitch) {
  const TestStream stream;
  const int* source = upload<int>({1, 2, 3, 4, 5, 6, 7, 8}, stream);  // two rows of four
  int* target = upload<int>({0, 0, 0, 0, 0}, stream);                 // two rows of three, the last cut short
  EXPECT_EQ(cudaMemcpy2DAsync(target, 12, source + 1, 16, 8, 2, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  EXPECT_EQ(fetch(target, 5, stream), (std::vector<int>{2, 3, 0, 6, 7}));
  EXPECT_EQ(cudaMemcpy2DAsync(target, 4, source, 16, 8, 2, cudaMemcpyDefault, stream), cudaErrorInvalidPitchValue);
}

class WrongCopies : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    values_ = device_array<float>(10);
  }

  void expect_refused(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind, const char* why) {
    EXPECT_EQ(cudaMemcpyAsync(target, source, bytes, kind, stream_), cudaErrorInvalidValue);
    expect_complaint(why);
  }

  cudaStream_t stream_ = nullptr;
  float* values_ = nullptr;
  float host_[20] = {};
};

TEST_F(WrongCopies, PastTheEndAreRefused) {
  expect_refused(host_, values_ + 5, 24, cudaMemcpyDeviceToHost, "the source reaches past the end");
}

TEST_F(WrongCopies, PastTheEndOfTheTargetAreRefused) {
  expect_refused(values_, host_, 44, cudaMemcpyDefault, "the target reaches past the end");
}

TEST_F(WrongCopies, OfFreedMemoryAreRefused) {
  cudaFree(values_);
  expect_refused(host_, values_, 4, cudaMemcpyDeviceToHost, "the source lies in a freed block");
}

TEST_F(WrongCopies, FromTheHostMarkedAsTheDeviceAreRefused) {
  expect_refused(values_, host_, 4, cudaMemcpyDeviceToDevice, "the source is not device memory");
}

TEST_F(WrongCopies, FromTheDeviceMarkedAsTheHostAreRefused) {
  expect_refused(values_, values_ + 1, 4, cudaMemcpyHostToDevice, "the source is device memory");
}

TEST_F(WrongCopies, OfRowsPastTheEndAreRefused) {
  EXPECT_EQ(cudaMemcpy2DAsync(host_, 8, values_, 20, 8, 3, cudaMemcpyDeviceToHost, stream_), cudaErrorInvalidValue);
  expect_complaint("the source reaches past the end");
}

TEST_F(WrongCopies, FillsPastTheEndAreRefused) {
  EXPECT_EQ(cudaMemsetAsync(values_, 0, 41, stream_), cudaErrorInvalidValue);
  expect_complaint("the target reaches past the end");
}

}  // namespace
}  // namespace canzona::emulated_gpu
