// What the parts of the emulated GPU share: settings, complaints, planted faults and the state of the calling thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "tests/emulated_gpu/emulated_gpu.hpp"

namespace canzona::emulated_gpu {

const Settings& settings();
void complain(std::string text);

/// Keeps an error of the calling thread for cudaGetLastError, and hands it on.
cudaError_t keep(cudaError_t result);
int current_device();

/// Whether the calling thread captures a stream, with a complaint: what would have to wait, or takes memory, is refused
/// it meanwhile.
bool is_forbidden_by_capture(const char* caller);

/// True once for each planted fault.
bool forgets_this_wait(int device);
bool fails_this_factorization();

void reset_streams();
void reset_events();
void reset_memory();
void reset_communicators();

}  // namespace canzona::emulated_gpu
