#include "optimized/cuda/cuda_device.hpp"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "optimized/cuda/check.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

/// NVTX sets itself up in its first call, and the first calls of several threads race.
void set_up_nvtx() {
  static std::once_flag once;
  std::call_once(once, [] { nvtxInitialize(nullptr); });
}

cudaStream_t first_stream_of(int index) {
  check(cudaSetDevice(index));
  return make_cuda_stream();
}

cudaDeviceProp own_properties() {
  int index = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&index));
  check(cudaGetDeviceProperties(&properties, index));
  return properties;
}

}  // namespace

int count_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  const char* reason = status == cudaSuccess ? "there is none" : cudaGetErrorString(status);
  throw InputError(fmt::format("backend cuda needs an NVIDIA GPU and its driver: {}", reason));
}

CudaSettings cuda_settings(const Options& options) {
  return {options.is("tf32", "on"), parse_symmetric_way(options.text("symmetric"))};
}

CudaDevice::CudaDevice(int index, Watch watch, const CudaSettings& settings)
    : own_stream_(first_stream_of(index)), watchdog_(std::move(watch)), linear_algebra_(*this, settings) {
  set_up_nvtx();
}

CudaDevice::~CudaDevice() { cudaStreamDestroy(own_stream_); }

std::string CudaDevice::name() const { return own_properties().name; }

std::string CudaDevice::uuid() const {
  const cudaUUID_t uuid = own_properties().uuid;
  return {uuid.bytes, sizeof(uuid.bytes)};
}

void CudaDevice::begin_range(const std::string& name) { nvtxRangePushA(name.c_str()); }

void CudaDevice::end_range() { nvtxRangePop(); }

std::unique_ptr<Stream> CudaDevice::make_stream() {
  Buffer partials = make_buffer(sizeof(double) * GpuQueue::kPartials);
  return std::make_unique<CudaStream>(make_cuda_stream(), std::move(partials), failure_, watchdog_);
}

std::unique_ptr<Event> CudaDevice::make_event() { return std::make_unique<CudaEvent>(clock_, watchdog_); }

std::int64_t CudaDevice::free_bytes() const {
  std::size_t free = 0, all = 0;
  check(cudaMemGetInfo(&free, &all));
  return static_cast<std::int64_t>(free);
}

void CudaDevice::copy(Stream& stream, const void* from, void* to, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)));
}

void CudaDevice::copy(Stream& stream, DevicePointer<const float> from, std::int64_t from_pitch, DevicePointer<float> to,
                      std::int64_t to_pitch, std::int64_t width, std::int64_t rows) {
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
  check(cudaMemcpy2DAsync(to.raw(), bytes(to_pitch), from.raw(), bytes(from_pitch), bytes(width),
                          static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, native(stream)));
}

Buffer CudaDevice::make_buffer(std::size_t bytes) {
  void* address = nullptr;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  check(cudaMalloc(&address, size));
  Buffer buffer(address, bytes, [](void* old) { cudaFree(old); });
  check(cudaMemsetAsync(address, 0, size, own_stream_));
  check(cudaStreamSynchronize(own_stream_));
  return buffer;
}

Buffer CudaDevice::make_host_buffer(std::size_t bytes) {
  void* address = nullptr;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  check(cudaMallocHost(&address, size));
  std::memset(address, 0, size);
  return {address, bytes, [](void* old) { cudaFreeHost(old); }};
}

}  // namespace canzona::optimized
