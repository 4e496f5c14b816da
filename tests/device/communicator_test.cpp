// Collectives of ranks that are threads: data, order of sums, bytes, deadlines.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "optimized/host/host_device.hpp"
#include "optimized/host/thread_communicator.hpp"
#include "reference/core/error.hpp"
#include "reference/core/exact_sum.hpp"
#include "reference/core/random.hpp"

namespace canzona::optimized {
namespace {

constexpr int kRanks = 3;

/// Runs body(rank, device, communicator, stream) on a thread for each rank of one group.
template <class Body>
void on_ranks(const Body& body, int ranks = kRanks, double deadline = 30) {
  const std::atomic<bool> aborted = false;
  ThreadGroup group(ranks, aborted);
  const Watch watch{.deadline_seconds = deadline, .describe = [](const std::vector<int>&) { return "nobody"; }};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto device = make_host_device();
      ThreadCommunicator communicator(group, rank, watch);
      const auto stream = device->make_stream();
      body(rank, *device, communicator, *stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

float contribution(int rank, std::int64_t i) {
  return static_cast<float>(random_normal(random_key({static_cast<std::uint64_t>(rank)}), i));
}

/// Sums in rank order, then the average, as the reference does it.
float average(std::int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += contribution(rank, i);
  return sum / static_cast<float>(kRanks);
}

// Uneven, of several ranges, and empty for one rank.
const Shares kShares{{{0, 5}, {40, 64}}, {}, {{5, 40}}};

TEST(ThreadCommunicator, ReduceScatterAveragesInRankOrderBitwise) {
  on_ranks([](int rank, Device& device, Communicator& communicator, Stream& stream) {
    std::vector<float> data(64);
    for (std::int64_t i = 0; i < 64; ++i) data[static_cast<std::size_t>(i)] = contribution(rank, i);
    const auto collective =
        communicator.reduce_scatter(device, DevicePointer<float>(data.data()), kShares, DType::fp32);
    const std::int64_t allocations = device.allocations();
    collective->start(stream);
    stream.synchronize();
    EXPECT_EQ(device.allocations(), allocations);
    std::int64_t others = 0;
    for (int member = 0; member < kRanks; ++member) {
      for (const Range& range : kShares[static_cast<std::size_t>(member)]) {
        others += member == rank ? 0 : range.size();
        for (std::int64_t i = range.begin; i < range.end; ++i)
          EXPECT_EQ(data[static_cast<std::size_t>(i)], member == rank ? average(i) : contribution(rank, i));
      }
    }
    EXPECT_EQ(collective->bytes_sent(), 4 * others);
  });
}

// What travels as bf16 is rounded before the sum, in fp32 and in rank order, and after it: as in the reference.
TEST(ThreadCommunicator, ReducesInBf16AsTheReferenceDoes) {
  const auto rounded_average = [](std::int64_t i) {
    float sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) sum += round_to(DType::bf16, contribution(rank, i));
    return round_to(DType::bf16, sum / static_cast<float>(kRanks));
  };
  on_ranks([&](int rank, Device& device, Communicator& communicator, Stream& stream) {
    std::vector<float> scattered(64);
    for (std::int64_t i = 0; i < 64; ++i) scattered[static_cast<std::size_t>(i)] = contribution(rank, i);
    std::vector<float> reduced = scattered;
    const auto scatter =
        communicator.reduce_scatter(device, DevicePointer<float>(scattered.data()), kShares, DType::bf16);
    const auto reduce = communicator.all_reduce(device, DevicePointer<float>(reduced.data()), {3, 60}, DType::bf16);
    scatter->start(stream);
    reduce->start(stream);
    stream.synchronize();
    std::int64_t own = 0;
    for (const Range& range : kShares[static_cast<std::size_t>(rank)]) {
      own += range.size();
      for (std::int64_t i = range.begin; i < range.end; ++i)
        EXPECT_EQ(scattered[static_cast<std::size_t>(i)], rounded_average(i));
    }
    for (std::int64_t i = 3; i < 60; ++i) EXPECT_EQ(reduced[static_cast<std::size_t>(i)], rounded_average(i));
    EXPECT_EQ(scatter->bytes_sent(), 2 * (64 - own));
    EXPECT_EQ(reduce->bytes_sent(), 2 * (57 - 19) + 2 * 2 * 19);
  });
}

TEST(ThreadCommunicator, TextsComeToAllInRankOrder) {
  on_ranks([](int rank, Device&, Communicator& communicator, Stream&) {
    const auto texts =
        dynamic_cast<HostCommunicator&>(communicator).all_gather(std::string(static_cast<std::size_t>(rank), 'x'));
    EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "xx"}));
  });
}

TEST(ThreadCommunicator, AllGatherBringsEveryShareToAll) {
  on_ranks([](int rank, Device& device, Communicator& communicator, Stream& stream) {
    std::vector<float> data(64, -1);
    for (const Range& range : kShares[static_cast<std::size_t>(rank)]) {
      for (std::int64_t i = range.begin; i < range.end; ++i) data[static_cast<std::size_t>(i)] = static_cast<float>(i);
    }
    const auto collective = communicator.all_gather(device, DevicePointer<float>(data.data()), kShares);
    for (int repeat = 0; repeat < 20; ++repeat) collective->start(stream);
    stream.synchronize();
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(data[i], static_cast<float>(i));
  });
}

TEST(ThreadCommunicator, AllReduceIsTheSameOnEveryRank) {
  on_ranks([](int rank, Device& device, Communicator& communicator, Stream& stream) {
    std::vector<float> data(64);
    for (std::int64_t i = 0; i < 64; ++i) data[static_cast<std::size_t>(i)] = contribution(rank, i);
    const auto collective = communicator.all_reduce(device, DevicePointer<float>(data.data()), {3, 60}, DType::fp32);
    collective->start(stream);
    stream.synchronize();
    for (std::int64_t i = 0; i < 64; ++i) {
      const bool inside = i >= 3 && i < 60;
      EXPECT_EQ(data[static_cast<std::size_t>(i)], inside ? average(i) : contribution(rank, i));
    }
  });
}

TEST(ThreadCommunicator, SumsAreExact) {
  on_ranks([](int rank, Device& device, Communicator& communicator, Stream& stream) {
    ExactSum own, sum;
    own.add(rank == 0 ? 1e300 : rank == 1 ? 1.0 : -1e300);
    std::vector<std::int64_t> integers(ExactSum::kIntegers);
    own.write(integers.data());
    const auto collective =
        communicator.all_reduce(device, DevicePointer<std::int64_t>(integers.data()), ExactSum::kIntegers);
    collective->start(stream);
    stream.synchronize();
    sum.add(integers.data());
    EXPECT_EQ(sum.value(), 1);
  });
}

TEST(ThreadCommunicator, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  const std::atomic<bool> aborted = false;
  ThreadGroup group(2, aborted);
  int alive = 0;
  const auto describe = [](const std::vector<int>& missing) {
    return "rank " + std::to_string(missing.front()) + " at Update(3)";
  };
  ThreadCommunicator communicator(group, 0, {.deadline_seconds = 0.2, .alive = [&] { ++alive; }, .describe = describe});
  const auto device = make_host_device();
  const auto stream = device->make_stream();
  std::int64_t integer = 1;
  const auto collective = communicator.all_reduce(*device, DevicePointer<std::int64_t>(&integer), 1);
  collective->start(*stream);
  try {
    stream->synchronize();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 at Update(3)"), std::string::npos) << error.what();
  }
  EXPECT_GE(alive, 2) << "who waits says that it lives";
}

TEST(ThreadCommunicator, AnAbortedRunEndsBeforeTheDeadline) {
  std::atomic<bool> aborted = true;
  ThreadGroup group(2, aborted);
  ThreadCommunicator communicator(group, 1, {.deadline_seconds = 3600});
  EXPECT_THROW(communicator.all_gather("here"), Error);
}

TEST(ThreadCommunicator, RanksThatDisagreeOnAPieceAreRefused) {
  // Rank 1 sees that 4 elements come where it expects 5; rank 0 then waits for it in vain. What a rank sends lives
  // until both have given up.
  std::vector<std::vector<float>> data(2, std::vector<float>(8, 1));
  std::vector<std::unique_ptr<Collective>> collectives(2);
  on_ranks(
      [&](int rank, Device&, Communicator& communicator, Stream& stream) {
        const auto own = static_cast<std::size_t>(rank);
        Transfer transfer(2);
        if (rank == 0) transfer.add_send(1, DevicePointer<float>(data[own].data()), 4);
        if (rank == 1) transfer.add_receive(0, DevicePointer<float>(data[own].data()), 5);
        collectives[own] = communicator.all_to_all(std::move(transfer));
        collectives[own]->start(stream);
        EXPECT_THROW(stream.synchronize(), Error);
      },
      2, 0.3);
}

}  // namespace
}  // namespace canzona::optimized
