// NCCL's errors: ranks that differ, abort, or call wrongly.
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "tests/emulated_gpu/nccl_support.hpp"

namespace canzona::emulated_gpu {
namespace {

using NcclFaults = EmulatedGpu;

/// All ranks end with invalid usage and this text, and nothing has moved.
void expect_mismatch(int ranks, const std::string& text,
                     const std::function<void(Rank& own, float* source, float* target)>& body) {
  for_communicator(ranks, [&](Rank& own) {
    auto* source = device_array<float>(20);
    auto* target = device_array<float>(20);
    cudaMemsetAsync(source, 0, 20 * sizeof(float), own.stream);
    body(own, source, target);
    EXPECT_EQ(own.error_at_end(), ncclInvalidUsage);
    EXPECT_EQ(own.text(), text);
    // Later operations do nothing.
    EXPECT_EQ(ncclAllReduce(source, target, 1, ncclFloat, ncclSum, own.communicator, own.stream), ncclSuccess);
    for (const float value : fetch(target, 20, own.stream)) EXPECT_TRUE(std::isnan(value));
  });
}

TEST_F(NcclFaults, OtherCountsAreNamed) {
  expect_mismatch(3, "rank 2 calls all-reduce of 6 float where rank 0 calls all-reduce of 5 float",
                  [](Rank& own, float* source, float* target) {
                    const std::size_t count = own.rank == 2 ? 6 : 5;
                    ncclAllReduce(source, target, count, ncclFloat, ncclSum, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, OtherTypesAreNamed) {
  expect_mismatch(2, "rank 1 calls all-reduce of 5 int32 where rank 0 calls all-reduce of 5 float",
                  [](Rank& own, float* source, float* target) {
                    const auto type = own.rank == 1 ? ncclInt32 : ncclFloat;
                    ncclAllReduce(source, target, 5, type, ncclSum, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, OtherReductionsAreNamed) {
  expect_mismatch(2, "rank 1 calls all-reduce of 5 float by maximum where rank 0 calls all-reduce of 5 float by sum",
                  [](Rank& own, float* source, float* target) {
                    const auto reduction = own.rank == 1 ? ncclMax : ncclSum;
                    ncclAllReduce(source, target, 5, ncclFloat, reduction, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, OtherRootsAreNamed) {
  expect_mismatch(2,
                  "rank 1 calls broadcast of 5 float with root 1 where rank 0 calls broadcast of 5 float with root 0",
                  [](Rank& own, float* source, float* target) {
                    ncclBroadcast(source, target, 5, ncclFloat, own.rank, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, SwappedOrderIsNamed) {
  expect_mismatch(2, "rank 1 calls all-gather of 5 float where rank 0 calls reduce-scatter of 5 float",
                  [](Rank& own, float* source, float* target) {
                    for (const int call : {own.rank, 1 - own.rank}) {
                      if (call == 1) {
                        ncclAllGather(source, target, 5, ncclFloat, own.communicator, own.stream);
                      } else {
                        ncclReduceScatter(source, target, 5, ncclFloat, ncclSum, own.communicator, own.stream);
                      }
                    }
                  });
}

TEST_F(NcclFaults, GroupsOfOtherLengthAreNamed) {
  expect_mismatch(2, "rank 1 has no more calls in its group where rank 0 calls all-gather of 5 float",
                  [](Rank& own, float* source, float* target) {
                    ncclGroupStart();
                    ncclAllReduce(source, target, 5, ncclFloat, ncclSum, own.communicator, own.stream);
                    if (own.rank == 0) ncclAllGather(source, target, 5, ncclFloat, own.communicator, own.stream);
                    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
                  });
}

TEST_F(NcclFaults, SendsOfOtherCountsAreNamed) {
  expect_mismatch(2, "rank 0 sends 5 float to rank 1 where rank 1 receives 6 float from rank 0",
                  [](Rank& own, float* source, float* target) {
                    if (own.rank == 0) ncclSend(source, 5, ncclFloat, 1, own.communicator, own.stream);
                    if (own.rank == 1) ncclRecv(target, 6, ncclFloat, 0, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, ASendWithoutItsReceiveIsNamed) {
  expect_mismatch(2, "rank 0 sends 3 float to rank 1 where rank 1 receives nothing from it in that group",
                  [](Rank& own, float* source, float*) {
                    ncclGroupStart();
                    if (own.rank == 0) ncclSend(source, 3, ncclFloat, 1, own.communicator, own.stream);
                    if (own.rank == 1) ncclSend(source, 3, ncclFloat, 0, own.communicator, own.stream);
                    ncclGroupEnd();
                  });
}

TEST_F(NcclFaults, AReceiveWithoutItsSendIsNamed) {
  expect_mismatch(2, "rank 1 receives 3 float from rank 0 where rank 0 sends it nothing in that group",
                  [](Rank& own, float*, float* target) {
                    ncclRecv(target, 3, ncclFloat, 1 - own.rank, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, ASendAgainstACollectiveIsNamed) {
  expect_mismatch(3, "rank 0 sends 3 float to rank 1 where rank 1 calls all-gather of 5 float",
                  [](Rank& own, float* source, float* target) {
                    if (own.rank == 0) {
                      ncclSend(source, 3, ncclFloat, 1, own.communicator, own.stream);
                    } else {
                      ncclAllGather(source, target, 5, ncclFloat, own.communicator, own.stream);
                    }
                  });
}

TEST_F(NcclFaults, TransfersInACircleAreNamed) {
  expect_mismatch(3, "rank 0 sends 3 float to rank 1 where rank 1 sends 3 float to rank 2",
                  [](Rank& own, float* source, float* target) {
                    ncclSend(source, 3, ncclFloat, (own.rank + 1) % 3, own.communicator, own.stream);
                    ncclRecv(target, 3, ncclFloat, (own.rank + 2) % 3, own.communicator, own.stream);
                  });
}

TEST_F(NcclFaults, AnAbortEndsAllRanks) {
  for_communicator(3, [](Rank& own) {
    auto* values = device_array<float>(1);
    if (own.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
      EXPECT_EQ(ncclCommAbort(own.communicator), ncclInvalidArgument);
      own.communicator = nullptr;
      return;
    }
    ncclAllReduce(values, values, 1, ncclFloat, ncclSum, own.communicator, own.stream);
    EXPECT_EQ(own.error_at_end(), ncclRemoteError);
    EXPECT_EQ(own.text(), "rank 2 has aborted the communicator");
  });
}

/// The first rank whose communicator is there aborts it, while most of the others have yet to return from its creation.
TEST_F(NcclFaults, ACreationDoesNotFailByWhatComesAfterIt) {
  std::atomic<bool> is_first = true;
  for_communicator(8, [&](Rank& own) {
    if (!is_first.exchange(false)) return;
    EXPECT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
    own.communicator = nullptr;
  });
}

TEST_F(NcclFaults, AWaitingRankMayAbortItself) {
  for_communicator(2, [](Rank& own) {
    if (own.rank == 1) return;
    auto* values = device_array<float>(1);
    ncclAllReduce(values, values, 1, ncclFloat, ncclSum, own.communicator, own.stream);
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(ncclCommAbort(own.communicator), ncclSuccess);
    }).join();
    own.communicator = nullptr;
    EXPECT_EQ(cudaStreamSynchronize(own.stream), cudaSuccess);
  });
}

TEST_F(NcclFaults, WrongCallsAreRefused) {
  for_communicator(2, [](Rank& own) {
    auto* values = device_array<float>(8);
    const auto reduce = [&](void* target, ncclDataType_t type) {
      return ncclAllReduce(values, target, 4, type, ncclSum, own.communicator, own.stream);
    };
    EXPECT_EQ(reduce(values + 1, ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(std::string(ncclGetLastError(nullptr)), "ncclAllReduce: the buffers overlap other than in place");
    EXPECT_EQ(reduce(values, ncclFloat8e4m3), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(values, values, 4, ncclFloat, 2, own.communicator, own.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(values, values, 4, ncclFloat, ncclSum, nullptr, own.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    ncclGroupStart();
    EXPECT_EQ(reduce(values, ncclFloat), ncclSuccess);
    EXPECT_EQ(reduce(values, ncclFloat8e4m3), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(own.error_at_end(), ncclSuccess);
  });
}

TEST_F(NcclFaults, MemoryThatTheDeviceMayNotUseIsRefused) {
  for_communicator(1, [](Rank& own) {
    auto* values = device_array<float>(4);
    EXPECT_EQ(ncclAllReduce(values, values, 5, ncclFloat, ncclSum, own.communicator, own.stream), ncclInvalidArgument);
  });
  expect_complaint("ncclAllReduce: the source reaches past the end of its block");
}

TEST_F(NcclFaults, RanksOnOneDeviceAreRefused) {
  ncclUniqueId identifier;
  ncclGetUniqueId(&identifier);
  for_ranks(2, [&](int rank) {
    cudaSetDevice(0);
    ncclComm_t communicator = nullptr;
    EXPECT_EQ(ncclCommInitRank(&communicator, 2, identifier, rank), ncclInvalidUsage);
    EXPECT_EQ(std::string(ncclGetLastError(nullptr)), "two ranks are on one device");
  });
}

#ifdef __SANITIZE_THREAD__

/// Two ranks add on one stream what a kernel writes on another, without a wait.
void add_unordered() {
  for_communicator(2, [](Rank& own) {
    const TestStream producer;
    auto* values = device_array<float>(1);
    launch(producer, [=] { *values = 1; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ncclAllReduce(values, values, 1, ncclFloat, ncclSum, own.communicator, own.stream);
    own.error_at_end();
  });
}

TEST_F(NcclFaults, AForgottenWaitBeforeACollectiveIsARace) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((add_unordered(), std::exit(0)), testing::ExitedWithCode(66), "data race");
}

#endif

}  // namespace
}  // namespace canzona::emulated_gpu
