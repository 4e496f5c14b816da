// Knobs and reports of the emulated GPU, which defines the functions of CUDA's runtime, cuBLAS, cuSOLVER and NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace canzona::emulated_gpu {

struct Settings {
  int devices = 16;
  std::uint64_t seed = 1;
  /// A stream waits a random time up to this before each queued operation. 0: not at all.
  int largest_delay_us = 50;
  /// Of each device.
  std::size_t memory_bytes = std::size_t{4} << 30;
  /// Whether ncclCommInitRankConfig with blocking = 0 returns ncclInProgress; otherwise it blocks.
  bool init_in_progress = false;
};

/// Nothing may be running. Streams, events and communicators end, all memory is given back, complaints and planted
/// faults are forgotten.
void reset(const Settings& settings);

/// What <<<>>> is to nvcc; kernel.hpp declares it too. In the kernel, calls of CUDA are refused.
cudaError_t launch_kernel(cudaStream_t stream, std::function<void()> kernel);

/// Misuse that a GPU would answer with wrong results or a crash, in words.
std::vector<std::string> complaints();
void forget_complaints();

/// Plants a fault: the nth call of cudaStreamWaitEvent on a stream of device 0 from now on, counted from 0, is ignored.
void forget_waits(int nth);
/// How many waits are left until then.
std::int64_t waits_before_forgotten();

/// Plants a fault: the next syevd or geqrf that is called reports info = 1 and leaves NaN.
void fail_next_factorization();

/// Of cudaMalloc and cudaMallocHost: not yet freed, and all since the last `reset`.
std::int64_t live_allocations();
std::int64_t allocations();

}  // namespace canzona::emulated_gpu
