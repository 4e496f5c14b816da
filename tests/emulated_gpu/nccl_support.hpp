// What the tests of NCCL share: a rank with its stream and communicator, and its ranks as threads.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>

#include "tests/emulated_gpu/test_support.hpp"

namespace canzona::emulated_gpu {

/// What one rank's thread has. The communicator is destroyed with it, or was before.
struct Rank {
  int rank = 0;
  int ranks = 0;
  TestStream stream;
  ncclComm_t communicator = nullptr;

  Rank(int own, int all, const ncclUniqueId& identifier) : rank(own), ranks(all) {
    EXPECT_EQ(ncclCommInitRank(&communicator, ranks, identifier, rank), ncclSuccess);
  }
  ~Rank() { EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  ncclResult_t error() const {
    ncclResult_t result = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(communicator, &result), ncclSuccess);
    return result;
  }
  /// Waits for the stream.
  ncclResult_t error_at_end() const {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return error();
  }
  std::string text() const { return ncclGetLastError(communicator); }
};

inline void for_communicator(int ranks, const std::function<void(Rank&)>& body) {
  ncclUniqueId identifier;
  EXPECT_EQ(ncclGetUniqueId(&identifier), ncclSuccess);
  for_ranks(ranks, [&](int rank) {
    Rank own(rank, ranks, identifier);
    body(own);
  });
}

}  // namespace canzona::emulated_gpu
