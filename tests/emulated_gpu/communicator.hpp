// A rank's handle of a communicator, and the errors that NCCL's functions return.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/emulated_gpu/membership.hpp"

/// It lives until `reset`, so that a destroyed one is known as such.
struct ncclComm {
  std::shared_ptr<canzona::emulated_gpu::Membership> members;
  int rank = 0;
  int device = 0;
  std::int64_t enqueued = 0;  // batches
  std::atomic<bool> open = true;
};

namespace canzona::emulated_gpu {

/// Keeps the text for the calling thread's ncclGetLastError, and hands the error on.
ncclResult_t refuse(ncclResult_t error, std::string text);

inline bool is_open(const ncclComm* communicator) {
  return communicator != nullptr && communicator->open.load(std::memory_order_relaxed);
}

/// Whether the calling thread is between ncclGroupStart and ncclGroupEnd.
bool is_grouping();

}  // namespace canzona::emulated_gpu
