// CUDA's functions of devices, errors and versions.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string_view>

#include "tests/emulated_gpu/internal.hpp"

namespace canzona::emulated_gpu {

namespace {

constexpr int kMultiprocessors = 132;
constexpr int kMajor = 9;
constexpr int kMinor = 0;
constexpr int kWarp = 32;
constexpr int kThreadsOfBlock = 1024;
constexpr int kSharedOfBlock = 48 << 10;
constexpr int kLargestSharedOfBlock = 227 << 10;
constexpr int kLevelTwoCache = 50 << 20;

thread_local int device_of_thread = 0;
thread_local cudaError_t error_of_thread = cudaSuccess;

bool is_device(int device) { return device >= 0 && device < settings().devices; }

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrorTexts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
};

const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText kUnknown{cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  const auto* found = std::find_if(std::begin(kErrorTexts), std::end(kErrorTexts),
                                   [error](const ErrorText& text) { return text.error == error; });
  return found == std::end(kErrorTexts) ? kUnknown : *found;
}

}  // namespace

cudaError_t keep(cudaError_t result) {
  if (result != cudaSuccess) error_of_thread = result;
  return result;
}

int current_device() { return device_of_thread; }

}  // namespace canzona::emulated_gpu

namespace emulated = canzona::emulated_gpu;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated::settings().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!emulated::is_device(device)) return emulated::keep(cudaErrorInvalidDevice);
  emulated::device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = emulated::device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!emulated::is_device(device)) return emulated::keep(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = emulated::kMultiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = emulated::kMajor; break;
    case cudaDevAttrComputeCapabilityMinor: *value = emulated::kMinor; break;
    case cudaDevAttrWarpSize: *value = emulated::kWarp; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = emulated::kThreadsOfBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = emulated::kSharedOfBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = emulated::kLargestSharedOfBlock; break;
    case cudaDevAttrL2CacheSize: *value = emulated::kLevelTwoCache; break;
    default: return emulated::keep(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!emulated::is_device(device)) return emulated::keep(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  constexpr std::string_view kName = "emulated";
  kName.copy(properties->name, kName.size());
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->totalGlobalMem = emulated::settings().memory_bytes;
  properties->major = emulated::kMajor;
  properties->minor = emulated::kMinor;
  properties->multiProcessorCount = emulated::kMultiprocessors;
  properties->warpSize = emulated::kWarp;
  properties->maxThreadsPerBlock = emulated::kThreadsOfBlock;
  properties->sharedMemPerBlock = emulated::kSharedOfBlock;
  properties->sharedMemPerBlockOptin = emulated::kLargestSharedOfBlock;
  properties->l2CacheSize = emulated::kLevelTwoCache;
  properties->concurrentKernels = 1;
  properties->unifiedAddressing = 1;
  properties->pciBusID = device;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) { return emulated::text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return emulated::text_of(error).text; }

cudaError_t cudaGetLastError() {
  const cudaError_t error = emulated::error_of_thread;
  emulated::error_of_thread = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return emulated::error_of_thread; }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
