// CUDA's functions of memory and copies. Any host memory is copied to and from as pinned memory is: later.
#include "tests/emulated_gpu/memory.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <limits>
#include <string>

#include "tests/emulated_gpu/blocks.hpp"
#include "tests/emulated_gpu/internal.hpp"
#include "tests/emulated_gpu/streams.hpp"

namespace canzona::emulated_gpu {

namespace {

enum class End { kHost, kDevice, kAny };

struct Ends {
  End target;
  End source;
};

Ends ends_of(cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost: return {End::kHost, End::kHost};
    case cudaMemcpyHostToDevice: return {End::kDevice, End::kHost};
    case cudaMemcpyDeviceToHost: return {End::kHost, End::kDevice};
    case cudaMemcpyDeviceToDevice: return {End::kDevice, End::kDevice};
    case cudaMemcpyDefault: break;
  }
  return {End::kAny, End::kAny};
}

/// nullptr if the bytes may be used.
const char* fault_of(const Location& location, End end) {
  switch (location.place) {
    case Place::kFreed: return "lies in a freed block";
    case Place::kBeyondEnd: return "reaches past the end of its block";
    case Place::kDevice: return end == End::kHost ? "is device memory where the copy says host" : nullptr;
    case Place::kPinned:
    case Place::kElsewhere: return end == End::kDevice ? "is not device memory" : nullptr;
  }
  return nullptr;
}

bool complain_of(const char* caller, const char* name, const char* fault) {
  if (fault == nullptr) return false;
  complain(std::string(caller) + ": " + name + " " + fault);
  return true;
}

/// False with a complaint.
bool is_end(const char* caller, const char* name, const void* address, std::size_t bytes, End end) {
  return !complain_of(caller, name, fault_of(blocks().find(address, bytes), end));
}

cudaError_t allocate(void** address, std::size_t bytes, int device, std::size_t limit) {
  if (address == nullptr) return keep(cudaErrorInvalidValue);
  *address = nullptr;
  if (is_forbidden_by_capture("an allocation")) return keep(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  *address = blocks().allocate(bytes, device, limit);
  return keep(*address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

/// Pinned memory waits for the calling thread's device.
cudaError_t free_block(const char* caller, void* address, bool pinned) {
  if (address == nullptr) return cudaSuccess;
  if (is_forbidden_by_capture(caller)) return keep(cudaErrorStreamCaptureUnsupported);
  if (!blocks().is_block(address, pinned)) {
    complain(std::string(caller) + " is given what is no live block of its kind");
    return keep(cudaErrorInvalidValue);
  }
  synchronize_streams(pinned ? current_device() : blocks().device_of(address));
  return keep(blocks().free(address) ? cudaSuccess : cudaErrorInvalidValue);
}

}  // namespace

bool are_usable(const char* caller, int device, std::initializer_list<Operand> operands) {
  for (const auto& [name, address, bytes] : operands) {
    if (bytes == 0) continue;
    const Location location = blocks().find(address, bytes);
    if (location.place == Place::kPinned) continue;
    if (complain_of(caller, name, fault_of(location, End::kDevice))) return false;
    if (complain_of(caller, name, location.device == device ? nullptr : "is memory of another device")) return false;
  }
  return true;
}

std::int64_t live_allocations() { return blocks().live(); }
std::int64_t allocations() { return blocks().all(); }
void reset_memory() { blocks().reset(); }

}  // namespace canzona::emulated_gpu

namespace emulated = canzona::emulated_gpu;

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return emulated::allocate(address, bytes, emulated::current_device(), emulated::settings().memory_bytes);
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return emulated::allocate(address, bytes, emulated::kPinned, std::numeric_limits<std::size_t>::max());
}

cudaError_t cudaFree(void* address) { return emulated::free_block("cudaFree", address, false); }
cudaError_t cudaFreeHost(void* address) { return emulated::free_block("cudaFreeHost", address, true); }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = emulated::settings().memory_bytes;
  *free = *total - emulated::blocks().used(emulated::current_device());
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t count, cudaStream_t stream) {
  emulated::Stream* open = emulated::open_stream("cudaMemsetAsync", stream, emulated::Captured::kept);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (count == 0) return cudaSuccess;
  if (!emulated::are_usable("cudaMemsetAsync", open->device(), {{"the target", target, count}})) {
    return emulated::keep(cudaErrorInvalidValue);
  }
  open->push([=] { std::memset(target, value, count); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  constexpr const char* kName = "cudaMemcpyAsync";
  emulated::Stream* open = emulated::open_stream(kName, stream, emulated::Captured::kept);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return emulated::keep(cudaErrorInvalidMemcpyDirection);
  if (count == 0) return cudaSuccess;
  const emulated::Ends ends = emulated::ends_of(kind);
  if (!emulated::is_end(kName, "the target", target, count, ends.target) ||
      !emulated::is_end(kName, "the source", source, count, ends.source)) {
    return emulated::keep(cudaErrorInvalidValue);
  }
  open->push([=] { std::memcpy(target, source, count); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  constexpr const char* kName = "cudaMemcpy2DAsync";
  emulated::Stream* open = emulated::open_stream(kName, stream, emulated::Captured::kept);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return emulated::keep(cudaErrorInvalidMemcpyDirection);
  if (width > target_pitch || width > source_pitch) return emulated::keep(cudaErrorInvalidPitchValue);
  if (width == 0 || height == 0) return cudaSuccess;
  const emulated::Ends ends = emulated::ends_of(kind);
  if (!emulated::is_end(kName, "the target", target, (height - 1) * target_pitch + width, ends.target) ||
      !emulated::is_end(kName, "the source", source, (height - 1) * source_pitch + width, ends.source)) {
    return emulated::keep(cudaErrorInvalidValue);
  }
  open->push([=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(target) + row * target_pitch,
                  static_cast<const std::byte*>(source) + row * source_pitch, width);
    }
  });
  return cudaSuccess;
}
