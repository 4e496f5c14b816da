// Collectives over NCCL on the emulated GPU, uneven ones in three ways; and faults planted in a backend's use of the
// GPU, each of which the net must catch.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "optimized/cuda/cuda_device.hpp"
#include "optimized/cuda/nccl_communicator.hpp"
#include "optimized/device/functors.hpp"
#include "optimized/device/launch.hpp"
#include "optimized/device/narrow.hpp"
#include "optimized/engine/threads.hpp"
#include "reference/core/error.hpp"
#include "tests/backend.hpp"

namespace canzona::optimized {
namespace {

constexpr std::int64_t kElements = 64;

/// What a rank brings: sums of these round, so that their order shows.
float contribution(int rank, std::int64_t i) {
  return static_cast<float>(rank + 1) * 0.1f + static_cast<float>(i % 7) * 1e-3f;
}

float rounded(float value, DType wire) { return wire == DType::bf16 ? static_cast<float>(Bf16(value)) : value; }

/// In rank order; `rounds` where the sum itself has travelled before it is divided.
float average(int ranks, std::int64_t i, DType wire, bool rounds) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += rounded(contribution(rank, i), wire);
  if (rounds) sum = rounded(sum, wire);
  return rounded(sum / static_cast<float>(ranks), wire);
}

/// Uneven: two ranges of the first member, none of the last but one where there are several, the rest in turn.
Shares shares_of(int ranks) {
  Shares shares(static_cast<std::size_t>(ranks));
  if (ranks == 1) return {{{0, kElements}}};
  shares[0] = {{0, 5}, {40, 47}};
  const std::size_t last = shares.size() - 1;
  for (std::size_t member = 1; member < last; ++member) {
    const auto begin = static_cast<std::int64_t>(4 + member * 3);
    if (member + 1 < last || ranks == 3) shares[member] = {{begin, begin + 3}};
  }
  shares[last] = {{47, kElements}};
  return shares;
}

struct Case {
  int ranks;
  const char* way;
  DType wire;
};

class NcclCollectives : public ::testing::TestWithParam<Case> {
 protected:
  /// Every rank's elements after what `make` starts on its communicator, twenty times over.
  template <class Make>
  static std::vector<std::vector<float>> after(const Make& make) {
    const Case& own = GetParam();
    std::vector<std::vector<float>> results(static_cast<std::size_t>(own.ranks));
    run_on_threads({own.ranks, 1}, 20, testing_support::backend({{"uneven", own.way}}), [&](Rank& rank) {
      const auto stream = rank.device.make_stream();
      const Buffer data = rank.device.allocate_elements<float>(kElements);
      std::vector<float> values(kElements);
      for (std::int64_t i = 0; i < kElements; ++i) values[static_cast<std::size_t>(i)] = contribution(rank.index, i);
      const auto collective = make(rank, data.as<float>());
      const std::int64_t taken = rank.device.allocations();
      for (int repeat = 0; repeat < 20; ++repeat) {
        rank.device.copy(*stream, values.data(), data.as<float>().raw(), values.size() * sizeof(float));
        collective->start(*stream);
      }
      EXPECT_EQ(rank.device.allocations(), taken);
      std::vector<float>& result = results[static_cast<std::size_t>(rank.index)];
      result.resize(kElements);
      rank.device.copy(*stream, data.as<float>().raw(), result.data(), result.size() * sizeof(float));
      stream->synchronize();
    });
    EXPECT_TRUE(emulated_gpu::complaints().empty()) << emulated_gpu::complaints().front();
    return results;
  }
};

TEST_P(NcclCollectives, ReduceScatterAveragesOwnElementsAndLeavesWhatNobodyOwns) {
  const auto [ranks, way, wire] = GetParam();
  const Shares shares = shares_of(ranks);
  const auto results = after([&, wire = wire](Rank& rank, DevicePointer<float> data) {
    return rank.dp.reduce_scatter(rank.device, data, shares, wire);
  });
  const bool rounds = std::string(way) != "pairwise";
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Range& range : shares[static_cast<std::size_t>(rank)]) {
      for (std::int64_t i = range.begin; i < range.end; ++i)
        EXPECT_EQ(results[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)],
                  average(ranks, i, wire, rounds));
    }
    if (ranks > 1) {
      EXPECT_EQ(results[static_cast<std::size_t>(rank)][35], contribution(rank, 35));
    }
  }
}

TEST_P(NcclCollectives, AllGatherBringsEveryShareToAll) {
  const auto [ranks, way, wire] = GetParam();
  const Shares shares = shares_of(ranks);
  // Whatever the elements are, their bytes come as they are.
  Shares halves = shares;
  for (auto& share : halves) {
    for (Range& range : share) range = {2 * range.begin, 2 * range.end};
  }
  const auto results = after([&, wire = wire](Rank& rank, DevicePointer<float> data) {
    if (wire == DType::fp32) return rank.dp.all_gather(rank.device, data, shares);
    return rank.dp.all_gather(rank.device, DevicePointer<Bf16>(reinterpret_cast<Bf16*>(data.raw())), halves);
  });
  for (const auto& result : results) {
    for (int owner = 0; owner < ranks; ++owner) {
      for (const Range& range : shares[static_cast<std::size_t>(owner)]) {
        for (std::int64_t i = range.begin; i < range.end; ++i)
          EXPECT_EQ(result[static_cast<std::size_t>(i)], contribution(owner, i));
      }
    }
  }
}

TEST_P(NcclCollectives, AllReduceIsTheSameOnEveryRank) {
  const auto [ranks, way, wire] = GetParam();
  const auto results = after([wire = wire](Rank& rank, DevicePointer<float> data) {
    return rank.dp.all_reduce(rank.device, data, {3, 60}, wire);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t i = 0; i < kElements; ++i) {
      EXPECT_EQ(results[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)],
                i >= 3 && i < 60 ? average(ranks, i, wire, true) : contribution(rank, i));
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const char* way : {"per-owner", "padded", "pairwise"}) {
      for (const DType wire : {DType::fp32, DType::bf16}) all.push_back({ranks, way, wire});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(EveryWay, NcclCollectives, ::testing::ValuesIn(cases()), [](const auto& own) {
  std::string name = own.param.way;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name + std::to_string(own.param.ranks) + std::string(name_of(own.param.wire));
});

// Bytes by way of four ranks; shares of 12, 3, 0 and 17 of 32 elements that anybody owns.
TEST(NcclCommunicator, CountsWhatEachWaySends) {
  const Shares shares{{{0, 12}}, {{12, 15}}, {}, {{15, 32}}};
  for (const auto& [way, scattered, gathered] :
       std::vector<std::tuple<const char*, std::vector<std::int64_t>, std::vector<std::int64_t>>>{
           {"per-owner", {20, 29, 32, 15}, {29, 32, 15, 20}},
           {"padded", {51, 51, 51, 51}, {51, 51, 51, 51}},
           {"pairwise", {20, 29, 32, 15}, {36, 9, 0, 51}}}) {
    run_on_threads({4, 1}, 20, testing_support::backend({{"uneven", way}}), [&](Rank& rank) {
      const Buffer data = rank.device.allocate_elements<float>(32);
      const auto index = static_cast<std::size_t>(rank.index);
      EXPECT_EQ(rank.dp.reduce_scatter(rank.device, data.as<float>(), shares, DType::fp32)->bytes_sent(),
                4 * scattered[index])
          << way;
      EXPECT_EQ(rank.dp.all_gather(rank.device, data.as<Bf16>(), shares)->bytes_sent(), 2 * gathered[index]) << way;
    });
  }
}

/// What a launch of two ranks says when it fails.
std::string failure_of(const RankBody& body) {
  try {
    run_on_threads({2, 1}, 5, testing_support::backend(), body);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(PlantedFaults, ASwappedOrderOfCollectivesIsNamed) {
  const std::string told = failure_of([](Rank& rank) {
    const auto stream = rank.device.make_stream();
    const Buffer data = rank.device.allocate_elements<float>(kElements);
    const auto reduce = rank.dp.all_reduce(rank.device, data.as<float>(), {0, 8}, DType::fp32);
    const auto gather = rank.dp.all_gather(rank.device, data.as<float>(), Shares{{{0, 8}}, {{8, 16}}});
    Collective& first = rank.index == 0 ? *reduce : *gather;
    Collective& second = rank.index == 0 ? *gather : *reduce;
    first.start(*stream);
    second.start(*stream);
    stream->synchronize();
  });
  EXPECT_NE(told.find("all-reduce"), std::string::npos) << told;
  EXPECT_NE(told.find("broadcast"), std::string::npos) << told;
}

TEST(PlantedFaults, CountsThatDifferAreNamed) {
  const std::string told = failure_of([](Rank& rank) {
    const auto stream = rank.device.make_stream();
    const Buffer data = rank.device.allocate_elements<float>(kElements);
    const auto reduce = rank.dp.all_reduce(rank.device, data.as<float>(), {0, 8 + rank.index}, DType::fp32);
    reduce->start(*stream);
    stream->synchronize();
  });
  EXPECT_NE(told.find("8 float"), std::string::npos) << told;
  EXPECT_NE(told.find("9 float"), std::string::npos) << told;
}

/// Two streams of one device, slow ones.
class PlantedFaultsOfOneRank : public ::testing::Test {
 protected:
  void SetUp() override { emulated_gpu::reset({.largest_delay_us = 2000}); }

  static void fill(Stream& stream, const Buffer& buffer, float value) {
    launch(stream, kElements, Fill<float>{value, buffer.as<float>().raw()});
  }
  static float first(CudaDevice& device, Stream& stream, const Buffer& buffer) {
    float value = 0;
    device.copy(stream, buffer.as<float>().raw(), &value, sizeof(value));
    stream.synchronize();
    return value;
  }
};

#ifndef __SANITIZE_THREAD__  // there they are races: races_test.cpp

// How often does a consumer that waits for its producer, whose wait may be forgotten, see what was there before?
TEST_F(PlantedFaultsOfOneRank, AForgottenWaitIsSeen) {
  const auto stale = [](bool forgets) {
    emulated_gpu::reset({.largest_delay_us = 2000});
    CudaDevice device(0, {});
    const auto producer = device.make_stream(), consumer = device.make_stream();
    const auto event = device.make_event();
    const Buffer made = device.allocate_elements<float>(kElements), taken = device.allocate_elements<float>(kElements);
    int count = 0;
    for (int round = 1; round <= 20; ++round) {
      fill(*producer, made, static_cast<float>(round));
      producer->record(*event);
      if (forgets) emulated_gpu::forget_waits(0);
      consumer->wait(*event);
      device.copy(*consumer, made.as<float>().raw(), taken.as<float>().raw(), kElements * sizeof(float));
      if (first(device, *consumer, taken) != static_cast<float>(round)) ++count;
      producer->synchronize();
    }
    return count;
  };
  EXPECT_EQ(stale(false), 0);
  EXPECT_GT(stale(true), 0);
}

TEST_F(PlantedFaultsOfOneRank, ABufferReusedTooEarlyIsSeen) {
  CudaDevice device(0, {});
  const auto reader = device.make_stream(), writer = device.make_stream();
  const Buffer shared = device.allocate_elements<float>(kElements), taken = device.allocate_elements<float>(kElements);
  std::set<float> seen;
  for (int round = 0; round < 20; ++round) {
    fill(*writer, shared, 1);
    writer->synchronize();
    device.copy(*reader, shared.as<float>().raw(), taken.as<float>().raw(), kElements * sizeof(float));
    fill(*writer, shared, 2);  // for the next round, without waiting for the reader
    seen.insert(first(device, *reader, taken));
    writer->synchronize();
  }
  EXPECT_TRUE(seen.contains(2));
}

#endif

TEST_F(PlantedFaultsOfOneRank, AUseAfterFreeIsSeen) {
  CudaDevice device(0, {});
  const auto stream = device.make_stream();
  const Buffer taken = device.allocate_elements<float>(kElements);
  DevicePointer<float> dangling;
  {
    const Buffer gone = device.allocate_elements<float>(kElements);
    dangling = gone.as<float>();
  }
  EXPECT_THROW(device.copy(*stream, dangling.raw(), taken.as<float>().raw(), kElements * sizeof(float)), Error);
  EXPECT_EQ(emulated_gpu::complaints().size(), 1u);
  emulated_gpu::forget_complaints();
}

TEST_F(PlantedFaultsOfOneRank, MemoryThatNobodyWroteIsNotANumber) {
  void* address = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&address, sizeof(float)), cudaSuccess);
  EXPECT_TRUE(std::isnan(*static_cast<float*>(address)));
  EXPECT_EQ(cudaFree(address), cudaSuccess);
}

}  // namespace
}  // namespace canzona::optimized
