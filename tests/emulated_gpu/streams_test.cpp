// Streams and events: order, asynchrony, and that nothing but a wait orders two streams.
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "tests/emulated_gpu/test_support.hpp"

namespace canzona::emulated_gpu {
namespace {

using Streams = EmulatedGpu;

TEST_F(Streams, RunInOrder) {
  const TestStream stream;
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) launch(stream, [&seen, i] { seen.push_back(i); });
  cudaStreamSynchronize(stream);
  ASSERT_EQ(seen.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_F(Streams, DoNotHoldUpTheCaller) {
  const TestStream stream;
  std::atomic<bool> go = false;
  launch(stream, [&] {
    while (!go) std::this_thread::yield();
  });
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  go = true;
  cudaStreamSynchronize(stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_F(Streams, GoOnAfterTheyAreDestroyed) {
  std::atomic<bool> go = false, done = false;
  {
    const TestStream stream;
    launch(stream, [&] {
      while (!go) std::this_thread::yield();
    });
    launch(stream, [&] { done = true; });
  }
  EXPECT_FALSE(done);
  go = true;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(done);
}

TEST_F(Streams, OfADeviceAreDrainedTogether) {
  const TestStream first, second;
  int sum[2] = {};
  launch_pause(first, 5);
  launch(first, [&] { sum[0] = 1; });
  launch(second, [&] { sum[1] = 1; });
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(sum[0] + sum[1], 2);
}

TEST_F(Streams, TheDefaultOneIsRefused) {
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorInvalidResourceHandle);
  expect_complaint("default stream");
}

TEST_F(Streams, ADestroyedOneIsRefused) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamDestroy(stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  expect_complaint("destroyed stream");
}

TEST_F(Streams, TakeKernelsOfTheirOwnDeviceOnly) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaSetDevice(1);
  EXPECT_EQ(cudaLaunchHostFunc(
                stream, [](void*) {}, nullptr),
            cudaErrorInvalidResourceHandle);
  expect_complaint("a stream of device 0 where the thread's device is 1");
}

TEST_F(Streams, CallsInsideAHostFunctionAreRefused) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaError_t result = cudaSuccess;
  launch(stream, [&, stream] { result = cudaStreamQuery(stream); });
  cudaStreamSynchronize(stream);
  EXPECT_EQ(result, cudaErrorInvalidResourceHandle);
  expect_complaint("inside a host function");
}

using Events = EmulatedGpu;

TEST_F(Events, HoldAStreamBackUntilTheRecordHasPassed) {
  const TestStream producer, consumer;
  const TestEvent event;
  int value = 0, seen = 0;
  launch_pause(producer, 5);
  launch(producer, [&] { value = 7; });
  cudaEventRecord(event, producer);
  cudaStreamWaitEvent(consumer, event, 0);
  launch(consumer, [&] { seen = value; });
  cudaStreamSynchronize(consumer);
  EXPECT_EQ(seen, 7);
}

TEST_F(Events, NeverRecordedArePassed) {
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(Events, ALaterRecordDoesNotHoldBackAnEarlierWait) {
  const TestStream first, second, consumer;
  const TestEvent event;
  std::atomic<bool> go = false;
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(consumer, event, 0);
  launch(second, [&] {
    while (!go) std::this_thread::yield();
  });
  cudaEventRecord(event, second);
  EXPECT_EQ(cudaStreamSynchronize(consumer), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  go = true;
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(Events, AWaitIsForTheLatestRecord) {
  const TestStream first, second, consumer;
  const TestEvent event;
  int value = 0, seen = 0;
  cudaEventRecord(event, first);
  launch_pause(second, 5);
  launch(second, [&] { value = 7; });
  cudaEventRecord(event, second);
  cudaStreamWaitEvent(consumer, event, 0);
  launch(consumer, [&] { seen = value; });
  cudaStreamSynchronize(consumer);
  EXPECT_EQ(seen, 7);
}

TEST_F(Events, MayBeDestroyedBeforeTheyPass) {
  const TestStream producer, consumer;
  int value = 0, seen = 0;
  {
    const TestEvent event;
    launch_pause(producer, 5);
    launch(producer, [&] { value = 7; });
    cudaEventRecord(event, producer);
    cudaStreamWaitEvent(consumer, event, 0);
  }
  launch(consumer, [&] { seen = value; });
  cudaStreamSynchronize(consumer);
  EXPECT_EQ(seen, 7);
}

TEST_F(Events, MeasureTime) {
  const TestStream stream;
  const TestEvent start(cudaEventDefault), end(cudaEventDefault), untimed;
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  cudaEventRecord(start, stream);
  launch_pause(stream, 5);
  cudaEventRecord(end, stream);
  cudaEventSynchronize(end);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 5.0F);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(Events, AreRecordedOnStreamsOfTheirDevice) {
  cudaEvent_t event;
  cudaStream_t stream;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaSetDevice(1);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  expect_complaint("different devices");
}

/// A producer that fills late, a consumer that reads; returns what it read.
float consume(int forgotten) {
  const TestStream producer, consumer;
  const TestEvent event;
  auto* value = device_array<float>(1);
  float seen = 0;
  if (forgotten >= 0) forget_waits(forgotten);
  launch_pause(producer, 20);
  launch(producer, [=] { *value = 7; });
  cudaEventRecord(event, producer);
  cudaStreamWaitEvent(consumer, event, 0);
  cudaStreamWaitEvent(producer, event, 0);
  launch(consumer, [&seen, value] { seen = *value; });
  cudaStreamSynchronize(consumer);
  // The caller goes on with the producer: that may not hide the fault.
  launch(producer, [] {});
  return seen;
}

TEST_F(Events, AWaitIsKeptWhereAnotherIsForgotten) {
  EXPECT_EQ(consume(-1), 7.0F);
  EXPECT_EQ(consume(1), 7.0F);
  EXPECT_EQ(consume(2), 7.0F);
}

#ifdef __SANITIZE_THREAD__

constexpr int kRaceFound = 66;  // the thread sanitizer's exit status

TEST_F(Events, AForgottenWaitIsARace) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((consume(0), std::exit(0)), testing::ExitedWithCode(kRaceFound), "data race");
  EXPECT_EXIT((consume(1), std::exit(0)), testing::ExitedWithCode(0), "");
}

/// The second stream starts long after the first is done, and the caller has pushed to both and asked for the event:
/// only a wait would order them.
void write_twice_unordered() {
  const TestStream first, second;
  const TestEvent event;
  int value = 0;
  launch(first, [&] { value = 1; });
  cudaEventRecord(event, first);
  launch_pause(first, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  launch(first, [] {});
  cudaEventRecord(event, first);
  launch(second, [&] { value = 2; });
  cudaStreamSynchronize(second);
}

TEST_F(Streams, AreNotOrderedByTheirCaller) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((write_twice_unordered(), std::exit(0)), testing::ExitedWithCode(kRaceFound), "data race");
}

#else

TEST_F(Events, AForgottenWaitLetsTheConsumerReadNan) { EXPECT_TRUE(std::isnan(consume(0))); }

#endif

TEST(Devices, DescribeThemselves) {
  reset({.devices = 3, .memory_bytes = 1 << 20});
  int count = 0, value = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidDevice");
  EXPECT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&value), cudaSuccess);
  EXPECT_EQ(value, 2);
  std::thread([] {
    int other = -1;
    cudaGetDevice(&other);
    EXPECT_EQ(other, 0);
  }).join();
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, 132);
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulated");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.totalGlobalMem, std::size_t{1} << 20);
}

}  // namespace
}  // namespace canzona::emulated_gpu
