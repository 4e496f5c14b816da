// NCCL's collectives, transfers, groups and splits, with each rank a thread.
#include "tests/emulated_gpu/nccl_support.hpp"

namespace canzona::emulated_gpu {
namespace {

class Nccl : public EmulatedGpu {};
class NcclOfRanks : public EmulatedGpu, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, NcclOfRanks, testing::Values(1, 2, 3, 5));

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// rank * 100 + index.
std::vector<float> numbered(int rank, int count) {
  std::vector<float> values(at(count));
  for (int i = 0; i < count; ++i) values[at(i)] = static_cast<float>(rank * 100 + i);
  return values;
}

float sum_of(int ranks, int index) { return static_cast<float>(ranks * (ranks - 1) / 2 * 100 + ranks * index); }

TEST_P(NcclOfRanks, AllReduceAddsInPlaceAndOut) {
  constexpr int kCount = 2500;  // more than are added at once
  for_communicator(GetParam(), [](Rank& own) {
    auto* source = upload(numbered(own.rank, kCount), own.stream);
    auto* target = device_array<float>(kCount);
    for (float* result : {target, source}) {
      ASSERT_EQ(ncclAllReduce(source, result, kCount, ncclFloat, ncclSum, own.communicator, own.stream), ncclSuccess);
      const auto values = fetch(result, kCount, own.stream);
      for (int i = 0; i < kCount; ++i) ASSERT_EQ(values[at(i)], sum_of(own.ranks, i));
    }
  });
}

TEST_P(NcclOfRanks, ReductionsAreMaximumMinimumAndAverage) {
  for_communicator(GetParam(), [](Rank& own) {
    const auto* source = upload(numbered(own.rank, 3), own.stream);
    auto* target = device_array<float>(3);
    const auto reduced = [&](ncclRedOp_t reduction) {
      EXPECT_EQ(ncclAllReduce(source, target, 3, ncclFloat, reduction, own.communicator, own.stream), ncclSuccess);
      return fetch(target, 3, own.stream);
    };
    EXPECT_EQ(reduced(ncclMax), numbered(own.ranks - 1, 3));
    EXPECT_EQ(reduced(ncclMin), numbered(0, 3));
    EXPECT_EQ(reduced(ncclAvg)[2], sum_of(own.ranks, 2) / static_cast<float>(own.ranks));
  });
}

TEST_P(NcclOfRanks, ReduceAndBroadcastHaveARoot) {
  for_communicator(GetParam(), [](Rank& own) {
    const int root = own.ranks - 1;
    auto* values = upload(numbered(own.rank, 3), own.stream);
    void* target = own.rank == root ? values : nullptr;
    ASSERT_EQ(ncclReduce(values, target, 3, ncclFloat, ncclSum, root, own.communicator, own.stream), ncclSuccess);
    const auto reduced = fetch(values, 3, own.stream);
    EXPECT_EQ(reduced[1], own.rank == root ? sum_of(own.ranks, 1) : static_cast<float>(own.rank * 100 + 1));
    auto* received = device_array<float>(3);
    ASSERT_EQ(ncclBroadcast(values, received, 3, ncclFloat, root, own.communicator, own.stream), ncclSuccess);
    EXPECT_EQ(fetch(received, 3, own.stream)[1], sum_of(own.ranks, 1));
  });
}

TEST_P(NcclOfRanks, ReduceScatterGivesEachItsBlock) {
  constexpr int kCount = 3;
  for_communicator(GetParam(), [](Rank& own) {
    auto* source = upload(numbered(own.rank, own.ranks * kCount), own.stream);
    auto* target = device_array<float>(kCount);
    for (float* result : {target, source + own.rank * kCount}) {
      ASSERT_EQ(ncclReduceScatter(source, result, kCount, ncclFloat, ncclSum, own.communicator, own.stream),
                ncclSuccess);
      const auto values = fetch(result, kCount, own.stream);
      for (int i = 0; i < kCount; ++i) EXPECT_EQ(values[at(i)], sum_of(own.ranks, own.rank * kCount + i));
    }
  });
}

TEST_P(NcclOfRanks, AllGatherPutsBlocksInRankOrder) {
  constexpr int kCount = 3;
  for_communicator(GetParam(), [](Rank& own) {
    const auto* source = upload(numbered(own.rank, kCount), own.stream);
    for (const bool in_place : {false, true}) {
      auto* target = device_array<float>(at(own.ranks * kCount));
      float* place = target + own.rank * kCount;
      cudaMemcpyAsync(place, source, kCount * sizeof(float), cudaMemcpyDeviceToDevice, own.stream);
      ASSERT_EQ(ncclAllGather(in_place ? place : source, target, kCount, ncclFloat, own.communicator, own.stream),
                ncclSuccess);
      const auto values = fetch(target, at(own.ranks * kCount), own.stream);
      for (int i = 0; i < own.ranks * kCount; ++i) {
        EXPECT_EQ(values[at(i)], static_cast<float>(i / kCount * 100 + i % kCount));
      }
    }
  });
}

/// From one rank to another; none to the next but one.
int length(int from, int to, int ranks) { return to == (from + 2) % ranks ? 0 : from + 2 * to + 1; }

TEST_P(NcclOfRanks, GroupsExchangeUnevenly) {
  for_communicator(GetParam(), [](Rank& own) {
    std::vector<float*> received(at(own.ranks));
    ncclGroupStart();
    for (int peer = 0; peer < own.ranks; ++peer) {
      const int out = length(own.rank, peer, own.ranks), in = length(peer, own.rank, own.ranks);
      const auto* source = out == 0 ? nullptr : upload(numbered(own.rank, out), own.stream);
      received[at(peer)] = in == 0 ? nullptr : device_array<float>(at(in));
      if (out > 0) {
        EXPECT_EQ(ncclSend(source, at(out), ncclFloat, peer, own.communicator, own.stream), ncclSuccess);
      }
      ncclGroupStart();
      if (in > 0) {
        EXPECT_EQ(ncclRecv(received[at(peer)], at(in), ncclFloat, peer, own.communicator, own.stream), ncclSuccess);
      }
      ncclGroupEnd();
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    for (int peer = 0; peer < own.ranks; ++peer) {
      const int in = length(peer, own.rank, own.ranks);
      if (in > 0) {
        EXPECT_EQ(fetch(received[at(peer)], at(in), own.stream), numbered(peer, in));
      }
    }
    EXPECT_EQ(own.error(), ncclSuccess);
  });
}

TEST_F(Nccl, TransfersNeedTheirTwoRanksOnly) {
  for_communicator(3, [](Rank& own) {
    auto* values = upload(numbered(own.rank, 2), own.stream);
    if (own.rank == 0) ncclSend(values, 2, ncclFloat, 2, own.communicator, own.stream);
    if (own.rank == 2) ncclRecv(values, 2, ncclFloat, 0, own.communicator, own.stream);
    if (own.rank == 1) return;
    EXPECT_EQ(fetch(values, 2, own.stream), numbered(0, 2));
  });
}

TEST_F(Nccl, APipelineOfTransfersIsNoDeadlock) {
  for_communicator(4, [](Rank& own) {
    auto* values = upload(numbered(own.rank, 2), own.stream);
    if (own.rank > 0) ncclRecv(values, 2, ncclFloat, own.rank - 1, own.communicator, own.stream);
    if (own.rank < 3) ncclSend(values, 2, ncclFloat, own.rank + 1, own.communicator, own.stream);
    ncclAllReduce(values, values, 2, ncclFloat, ncclMax, own.communicator, own.stream);
    EXPECT_EQ(fetch(values, 2, own.stream), numbered(0, 2));
    EXPECT_EQ(own.error(), ncclSuccess);
  });
}

template <class Element>
void expect_sum_of(ncclDataType_t type) {
  for_communicator(3, [type](Rank& own) {
    auto* values = upload<Element>({static_cast<Element>(static_cast<float>(own.rank + 1))}, own.stream);
    ASSERT_EQ(ncclAllReduce(values, values, 1, type, ncclSum, own.communicator, own.stream), ncclSuccess);
    EXPECT_EQ(static_cast<float>(fetch(values, 1, own.stream)[0]), 6.0F);
  });
}

TEST_F(Nccl, TakesTypes) {
  expect_sum_of<float>(ncclFloat);
  expect_sum_of<double>(ncclDouble);
  expect_sum_of<__nv_bfloat16>(ncclBfloat16);
  expect_sum_of<__half>(ncclHalf);
  expect_sum_of<std::int32_t>(ncclInt32);
  expect_sum_of<std::int64_t>(ncclInt64);
  expect_sum_of<std::uint64_t>(ncclUint64);
  expect_sum_of<std::int8_t>(ncclInt8);
  expect_sum_of<std::uint8_t>(ncclUint8);
}

TEST_F(Nccl, Bfloat16IsAddedInFloatAndRoundedOnce) {
  for_communicator(3, [](Rank& own) {
    auto* values = upload<__nv_bfloat16>({own.rank == 0 ? 256.0F : 1.0F}, own.stream);
    ncclAllReduce(values, values, 1, ncclBfloat16, ncclSum, own.communicator, own.stream);
    EXPECT_EQ(static_cast<float>(fetch(values, 1, own.stream)[0]), 258.0F);
  });
}

TEST_F(Nccl, CollectivesWithoutElementsAreNothing) {
  for_communicator(2, [](Rank& own) {
    if (own.rank == 0) {
      EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, own.communicator, own.stream), ncclSuccess);
    }
    EXPECT_EQ(own.error_at_end(), ncclSuccess);
  });
}

TEST_F(Nccl, OneCommunicatorMayBeUsedOnTwoStreams) {
  for_communicator(2, [](Rank& own) {
    const TestStream other;
    auto* first = upload(numbered(own.rank, 2), own.stream);
    auto* second = upload(numbered(own.rank, 2), own.stream);
    launch_pause(own.stream, own.rank * 5);
    ncclAllReduce(first, first, 2, ncclFloat, ncclSum, own.communicator, own.stream);
    ncclAllReduce(second, second, 2, ncclFloat, ncclMax, own.communicator, other);
    EXPECT_EQ(fetch(second, 2, other), numbered(1, 2));
    EXPECT_EQ(fetch(first, 2, own.stream)[1], sum_of(2, 1));
    ncclGroupStart();  // and both in one group
    ncclAllReduce(first, first, 2, ncclFloat, ncclAvg, own.communicator, own.stream);
    ncclBroadcast(second, second, 2, ncclFloat, 0, own.communicator, other);
    ncclGroupEnd();
    EXPECT_EQ(fetch(second, 2, other), numbered(1, 2));
    EXPECT_EQ(fetch(first, 2, own.stream)[1], sum_of(2, 1));
    EXPECT_EQ(own.error(), ncclSuccess);
  });
}

TEST_F(Nccl, SplitMakesCommunicatorsByColorAndKey) {
  for_communicator(5, [](Rank& own) {
    const int color = own.rank == 4 ? NCCL_SPLIT_NOCOLOR : own.rank % 2;
    for (const bool reversed : {false, true}) {
      ncclComm_t part = nullptr;
      ASSERT_EQ(ncclCommSplit(own.communicator, color, reversed ? -own.rank : 0, &part, nullptr), ncclSuccess);
      if (own.rank == 4) {
        EXPECT_EQ(part, nullptr);
        continue;
      }
      int ranks = 0, rank = 0;
      EXPECT_EQ(ncclCommCount(part, &ranks), ncclSuccess);
      EXPECT_EQ(ncclCommUserRank(part, &rank), ncclSuccess);
      EXPECT_EQ(ranks, 2);
      EXPECT_EQ(rank, reversed ? 1 - own.rank / 2 : own.rank / 2);
      auto* values = upload(numbered(own.rank, 1), own.stream);
      ncclGroupStart();
      ncclAllReduce(values, values, 1, ncclFloat, ncclSum, part, own.stream);
      ncclGroupEnd();
      EXPECT_EQ(fetch(values, 1, own.stream)[0], color == 0 ? 200.0F : 400.0F);
      EXPECT_EQ(ncclCommFinalize(part), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    }
  });
}

TEST_F(Nccl, AGroupMayHoldOperationsOfTwoCommunicators) {
  for_communicator(2, [](Rank& own) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(own.communicator, 0, own.rank, &twin, nullptr), ncclSuccess);
    const TestStream other;
    auto* first = upload(numbered(own.rank, 1), own.stream);
    auto* second = upload(numbered(own.rank, 1), own.stream);
    ncclGroupStart();
    ncclAllReduce(first, first, 1, ncclFloat, ncclSum, own.communicator, own.stream);
    ncclAllReduce(second, second, 1, ncclFloat, ncclSum, twin, other);
    EXPECT_EQ(cudaStreamQuery(own.stream), cudaSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(fetch(first, 1, own.stream)[0], 100.0F);
    EXPECT_EQ(fetch(second, 1, other)[0], 100.0F);
    ncclCommDestroy(twin);
  });
}

TEST_F(Nccl, InitMayBeInProgress) {
  start({.init_in_progress = true});
  ncclUniqueId identifier;
  ncclGetUniqueId(&identifier);
  std::vector<ncclComm_t> communicators(2);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclCommInitRankConfig(&communicators[0], 2, identifier, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommGetAsyncError(communicators[0], &error), ncclSuccess);
  EXPECT_EQ(error, ncclInProgress);
  cudaSetDevice(1);
  EXPECT_EQ(ncclCommInitRankConfig(&communicators[1], 2, identifier, 1, &config), ncclInProgress);
  for (ncclComm_t communicator : communicators) {
    EXPECT_EQ(ncclCommGetAsyncError(communicator, &error), ncclSuccess);
    EXPECT_EQ(error, ncclSuccess);
    ncclCommDestroy(communicator);
  }
}

TEST_F(Nccl, HasAVersion) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
}  // namespace canzona::emulated_gpu
