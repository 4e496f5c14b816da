// CUDA's functions of streams and events.
#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/internal.hpp"
#include "tests/emulated_gpu/streams.hpp"

namespace emulated = canzona::emulated_gpu;

/// Only callers take the mutex.
struct CUevent_st {
  int device = 0;
  bool timed = true;
  std::atomic<bool> open = true;
  std::mutex mutex;
  const emulated::Record* latest = nullptr;
};

namespace canzona::emulated_gpu {

namespace {

struct Events {
  std::mutex mutex;
  std::vector<std::unique_ptr<CUevent_st>> all;  // destroyed ones too, until `reset`
};

Events& events() {
  static Events all;
  return all;
}

bool is_open(cudaEvent_t event) { return event != nullptr && event->open.load(std::memory_order_relaxed); }

const Record* latest_record(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->latest;
}

}  // namespace

void reset_events() { events().all.clear(); }

}  // namespace canzona::emulated_gpu

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const emulated::Stream* open = emulated::open_stream("cudaStreamQuery", stream);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  return emulated::keep(open->is_idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const emulated::Stream* open = emulated::open_stream("cudaStreamSynchronize", stream);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  open->synchronize();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  emulated::Stream* open = emulated::open_stream("cudaStreamWaitEvent", stream);
  if (open == nullptr || !emulated::is_open(event)) return emulated::keep(cudaErrorInvalidResourceHandle);
  const emulated::Record* record = emulated::latest_record(event);
  if (!emulated::forgets_this_wait(open->device()) && record != nullptr) open->wait(*record);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  emulated::Stream* open = emulated::launchable_stream("cudaLaunchHostFunc", stream);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (function == nullptr) return emulated::keep(cudaErrorInvalidValue);
  open->push([function, argument] { emulated::run_on_stream([=] { function(argument); }); });
  return cudaSuccess;
}

cudaError_t canzona::emulated_gpu::launch_kernel(cudaStream_t stream, std::function<void()> kernel) {
  Stream* open = launchable_stream("a kernel's launch", stream, Captured::kept);
  if (open == nullptr) return keep(cudaErrorInvalidResourceHandle);
  open->push([kernel = std::move(kernel)] { run_on_stream(kernel); });
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  emulated::synchronize_streams(emulated::current_device());
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (event == nullptr) return emulated::keep(cudaErrorInvalidValue);
  auto made = std::make_unique<CUevent_st>();
  made->device = emulated::current_device();
  made->timed = (flags & cudaEventDisableTiming) == 0;
  *event = made.get();
  const std::lock_guard lock(emulated::events().mutex);
  emulated::events().all.push_back(std::move(made));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!emulated::is_open(event)) return emulated::keep(cudaErrorInvalidResourceHandle);
  event->open.store(false, std::memory_order_relaxed);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  emulated::Stream* open = emulated::open_stream("cudaEventRecord", stream);
  if (open == nullptr || !emulated::is_open(event)) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (event->device != open->device()) {
    emulated::complain("cudaEventRecord is given an event and a stream of different devices");
    return emulated::keep(cudaErrorInvalidResourceHandle);
  }
  const std::lock_guard lock(event->mutex);
  event->latest = &open->record();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!emulated::is_open(event)) return emulated::keep(cudaErrorInvalidResourceHandle);
  const emulated::Record* record = emulated::latest_record(event);
  return emulated::keep(record == nullptr || record->has_passed() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!emulated::is_open(event)) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (const emulated::Record* record = emulated::latest_record(event)) record->wait();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (milliseconds == nullptr) return emulated::keep(cudaErrorInvalidValue);
  if (!emulated::is_open(start) || !emulated::is_open(end) || !start->timed || !end->timed) {
    return emulated::keep(cudaErrorInvalidResourceHandle);
  }
  const emulated::Record* first = emulated::latest_record(start);
  const emulated::Record* last = emulated::latest_record(end);
  if (first == nullptr || last == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (!first->has_passed() || !last->has_passed()) return emulated::keep(cudaErrorNotReady);
  *milliseconds = static_cast<float>((last->seconds() - first->seconds()) * 1e3);
  return cudaSuccess;
}
