// Streams and events of a device: CUDA's meaning of order, record and wait.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "optimized/device/host_clock.hpp"
#include "reference/core/error.hpp"
#include "tests/device/device_under_test.hpp"

namespace canzona::optimized {
namespace {

using device_under_test::make_device;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

class DeviceStreams : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device = make_device();
  std::unique_ptr<Stream> a = device->make_stream();
  std::unique_ptr<Stream> b = device->make_stream();
  std::unique_ptr<Event> event = device->make_event();
};

TEST_F(DeviceStreams, RunInOrderAndAsynchronouslyToTheCaller) {
  std::vector<int> order;
  std::atomic<bool> open = false;
  a->run([&] {
    while (!open) std::this_thread::yield();
  });
  for (int i = 0; i < 100; ++i) a->run([&order, i] { order.push_back(i); });
  EXPECT_TRUE(order.empty());  // the caller came here while the stream waits
  open = true;
  a->synchronize();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(DeviceStreams, AWaitHoldsForTheLatestRecordBeforeIt) {
  std::atomic<int> value = 0;
  a->run([&] {
    nap();
    value = 1;
  });
  a->record(*event);
  b->wait(*event);
  int seen = -1;
  b->run([&] { seen = value; });
  b->synchronize();
  EXPECT_EQ(seen, 1);
  // A later record does not hold back a wait that was asked for before it.
  std::atomic<bool> open = false;
  b->wait(*event);
  a->run([&] {
    while (!open) std::this_thread::yield();
  });
  a->record(*event);
  b->synchronize();
  open = true;
  a->synchronize();
}

TEST_F(DeviceStreams, AnEventThatWasNeverRecordedHoldsNobody) {
  bool ran = false;
  a->wait(*event);
  a->run([&] { ran = true; });
  a->synchronize();
  EXPECT_TRUE(ran);
  event->synchronize();
}

TEST_F(DeviceStreams, EventsTellTheTime) {
  const auto after = device->make_event();
  a->record(*event);
  a->run(nap);
  a->record(*after);
  after->synchronize();
  EXPECT_GE(after->seconds() - event->seconds(), 0.02);
}

// Ranks on one machine tell their times on one clock.
TEST_F(DeviceStreams, EventsTellTheTimeOnTheHostsClock) {
  constexpr double kLate = 0.2;  // by which a busy machine may notice an event too late
  const double before = host_seconds();
  a->record(*event);
  event->synchronize();
  EXPECT_GE(event->seconds(), before - kLate);
  EXPECT_LE(event->seconds(), host_seconds() + kLate);
}

// As CUDA's: nothing is done to memory that a failed step left halfway, on whatever stream.
TEST_F(DeviceStreams, AFailureStaysAndHoldsNobodyBack) {
  bool ran = false;
  a->run([] { throw Error("broken"); });
  a->run([&] { ran = true; });
  a->record(*event);
  b->wait(*event);
  b->run([&] { ran = true; });
  EXPECT_THROW(b->synchronize(), Error);
  EXPECT_THROW(a->synchronize(), Error);
  EXPECT_FALSE(ran);
  b->run([&] { ran = true; });
  EXPECT_THROW(b->synchronize(), Error);
  EXPECT_FALSE(ran);
}

// The mark of an index is only its own, whichever of the calls that wait are done to it at once.
TEST_F(DeviceStreams, EveryIndexMeetsItsTasksInOrderAndNoOtherWorkOvertakes) {
  for (const int threads : device_under_test::thread_counts()) {
    constexpr std::int64_t kCount = 7;
    const auto several = make_device(threads);
    const auto stream = several->make_stream();
    std::array<std::vector<int>, kCount> seen;
    const auto mark = [&](int value) {
      stream->run_each(kCount, [&seen, value](std::int64_t i) { seen[static_cast<std::size_t>(i)].push_back(value); });
    };
    std::atomic<bool> open = false;
    stream->run([&] {
      while (!open) std::this_thread::yield();
    });
    for (const int value : {1, 2, 3}) mark(value);
    std::int64_t halfway = 0;
    std::size_t between = 0;
    stream->run([&] {
      for (const std::vector<int>& own : seen) halfway += static_cast<std::int64_t>(own.size());
    });
    mark(4);
    stream->run_each(1, [&](std::int64_t) { between = seen[kCount - 1].size(); });
    mark(5);
    open = true;
    stream->synchronize();
    EXPECT_EQ(halfway, 3 * kCount);
    EXPECT_EQ(between, 4u);
    for (const std::vector<int>& own : seen) EXPECT_EQ(own, (std::vector<int>{1, 2, 3, 4, 5}));
  }
}

TEST_F(DeviceStreams, AFailureOfOneIndexStaysToo) {
  const auto several = make_device(2);
  const auto stream = several->make_stream();
  bool ran = false;
  stream->run_each(5, [](std::int64_t index) {
    if (index == 3) throw Error("broken");
  });
  stream->run([&] { ran = true; });
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_FALSE(ran);
}

TEST_F(DeviceStreams, ABodyIsRepeatedWhileItsFlagIsSetAndNoMoreOftenThanAsked) {
  const Buffer flag = device->allocate_elements<std::int32_t>(1);
  const Buffer next = device->allocate_on_host(sizeof(std::int32_t));
  std::int32_t* go = next.as<std::int32_t>().raw();
  int rounds = 0;
  const auto set = [&](Stream& stream, std::function<std::int32_t()> value) {
    stream.run([go, value = std::move(value)] { *go = value(); });
    device->copy(stream, go, flag.as<std::int32_t>().raw(), sizeof(*go));
  };
  const auto body = [&](Stream& stream) {
    stream.run([&] { ++rounds; });
    set(stream, [&] { return rounds < 3 ? 1 : 0; });
  };
  const auto rounds_of = [&](std::int32_t first, std::int64_t most) {
    rounds = 0;
    set(*a, [first] { return first; });  // the flag counts when the work before is done
    a->repeat_while(flag.as<std::int32_t>(), most, body);
    a->synchronize();
    return rounds;
  };
  EXPECT_EQ(rounds_of(1, 10), 3);
  EXPECT_EQ(rounds_of(1, 2), 2);
  EXPECT_EQ(rounds_of(0, 10), 0);
  if (!device_under_test::kIsHost) return;  // a GPU's stream would take events as well
  set(*a, [] { return 1; });
  a->repeat_while(flag.as<std::int32_t>(), 1, [&](Stream& stream) { stream.record(*event); });
  EXPECT_THROW(a->synchronize(), Error);
}

TEST_F(DeviceStreams, PendingWorkIsDoneBeforeAStreamGoes) {
  std::atomic<int> count = 0;
  for (int i = 0; i < 50; ++i) a->run([&] { ++count; });
  a.reset();
  EXPECT_EQ(count, 50);
}

TEST_F(DeviceStreams, MemoryIsZeroedCountedAndCopied) {
  const std::int64_t before = device->allocations();
  Buffer buffer = device->allocate_elements<float>(5);
  EXPECT_EQ(device->allocations(), before + 1);
  const float sent[5] = {1, 2, 3, 4, 5};
  float received[5] = {9, 9, 9, 9, 9};
  device->copy(*a, buffer.as<float>().raw(), received, sizeof(received));
  a->synchronize();
  for (const float value : received) EXPECT_EQ(value, 0);
  device->copy(*a, sent, buffer.as<float>().raw(), sizeof(sent));
  device->copy(*a, buffer.as<float>().raw(), received, sizeof(received));
  a->synchronize();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(received[i], sent[i]);
  const Buffer moved = std::move(buffer);
  EXPECT_EQ(moved.bytes(), 20u);
}

}  // namespace
}  // namespace canzona::optimized
