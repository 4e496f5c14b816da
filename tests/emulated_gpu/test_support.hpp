// What the tests of the emulated GPU share: streams and arrays that clean up, kernels from lambdas, ranks as threads.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/emulated_gpu.hpp"

namespace canzona::emulated_gpu {

/// Each test starts from nothing, and complains of nothing unless it says so.
class EmulatedGpu : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override { EXPECT_EQ(complaints(), std::vector<std::string>{}); }

  static void start(const Settings& settings) {
    reset(settings);
    cudaSetDevice(0);
    cudaGetLastError();
  }

  /// The only complaint so far holds the text; then it is forgotten.
  static void expect_complaint(const std::string& text) {
    ASSERT_EQ(complaints().size(), 1U);
    EXPECT_NE(complaints().front().find(text), std::string::npos) << complaints().front();
    start({});
  }
};

class TestStream {
 public:
  TestStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~TestStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned int flags = cudaEventDisableTiming) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, flags), cudaSuccess);
  }
  ~TestEvent() { EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Of the calling thread's device; given back by `reset`.
template <class Element>
Element* device_array(std::size_t count) {
  void* address = nullptr;
  EXPECT_EQ(cudaMalloc(&address, count * sizeof(Element)), cudaSuccess);
  return static_cast<Element*>(address);
}

inline void launch(cudaStream_t stream, std::function<void()> kernel) {
  EXPECT_EQ(launch_kernel(stream, std::move(kernel)), cudaSuccess);
}

inline void launch_pause(cudaStream_t stream, int milliseconds) {
  launch(stream, [=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
}

/// Waits for the stream.
template <class Element>
std::vector<Element> fetch(const Element* source, std::size_t count, cudaStream_t stream) {
  std::vector<Element> values(count);
  EXPECT_EQ(cudaMemcpyAsync(values.data(), source, count * sizeof(Element), cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return values;
}

/// A new array with the values; waits for the stream.
template <class Element>
Element* upload(const std::vector<Element>& values, cudaStream_t stream) {
  auto* target = device_array<Element>(values.size());
  EXPECT_EQ(cudaMemcpyAsync(target, values.data(), values.size() * sizeof(Element), cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return target;
}

/// Each rank is a thread with a device of its own.
inline void for_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace canzona::emulated_gpu
