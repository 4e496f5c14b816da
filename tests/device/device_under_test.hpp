// The device that the tests of devices run on, by the program that they are built into: the host (canzona_tests), the
// emulated GPU (canzona_emulated_tests), or a GPU (canzona_device_tests).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "optimized/device/device.hpp"
#include "reference/core/matrix.hpp"

#if defined(CANZONA_EMULATED_GPU) || defined(CANZONA_DEVICE_TESTS)
#include "optimized/cuda/cuda_device.hpp"
#else
#include "optimized/host/host_device.hpp"
#endif
#if defined(CANZONA_EMULATED_GPU)
#include "tests/emulated_gpu/emulated_gpu.hpp"
#endif

namespace canzona::optimized::device_under_test {

#if defined(CANZONA_EMULATED_GPU) || defined(CANZONA_DEVICE_TESTS)
inline constexpr bool kIsHost = false;
#else
inline constexpr bool kIsHost = true;
#endif
/// cuBLAS takes other kernels for stacks than for one matrix.
#if defined(CANZONA_DEVICE_TESTS)
inline constexpr bool kStacksAreBitwise = false;
#else
inline constexpr bool kStacksAreBitwise = true;
#endif

/// A CUDA device has two of computing symmetric products in two bytes.
inline std::vector<std::string> symmetric_ways() {
  return kIsHost ? std::vector<std::string>{""} : std::vector<std::string>{"cublas", "tiles"};
}

inline std::unique_ptr<Device> make_device([[maybe_unused]] int threads = 1,
                                           [[maybe_unused]] const std::string& symmetric_way = "cublas") {
#if defined(CANZONA_EMULATED_GPU)
  if (emulated_gpu::live_allocations() == 0) emulated_gpu::reset({});  // freed memory stays until then
#endif
#if defined(CANZONA_EMULATED_GPU) || defined(CANZONA_DEVICE_TESTS)
  return std::make_unique<CudaDevice>(0, Watch{}, CudaSettings{.symmetric = parse_symmetric_way(symmetric_way)});
#else
  return make_host_device(threads);
#endif
}

/// Only the host's device has a number of threads.
inline std::vector<int> thread_counts() { return kIsHost ? std::vector<int>{1, 2, 3} : std::vector<int>{1}; }

/// A device with a stream and what tests put on it.
struct OnDevice {
  explicit OnDevice(int threads = 1, const std::string& symmetric_way = "cublas")
      : device(make_device(threads, symmetric_way)) {}

  template <class T>
  DevicePointer<T> put(const T* values, std::int64_t count) {
    buffers.push_back(device->allocate_elements<T>(count));
    device->copy(*stream, values, buffers.back().as<T>().raw(), sizeof(T) * static_cast<std::size_t>(count));
    stream->synchronize();
    return buffers.back().as<T>();
  }
  template <class T>
  MatrixView<T> put(const Matrix<T>& matrix) {
    return {put(matrix.data(), matrix.size()), matrix.rows(), matrix.cols()};
  }
  template <class T>
  DevicePointer<T> zeros(std::int64_t count) {
    buffers.push_back(device->allocate_elements<T>(count));
    return buffers.back().as<T>();
  }
  /// Work memory of a factorization.
  template <class T>
  DevicePointer<std::byte> work(std::int64_t n) {
    return zeros<std::byte>(algebra.factorizations<T>().bytes(n));
  }

  // These wait for the stream.
  template <class T>
  std::vector<T> get(DevicePointer<T> values, std::int64_t count) {
    std::vector<T> own(static_cast<std::size_t>(count));
    device->copy(*stream, values.raw(), own.data(), sizeof(T) * own.size());
    stream->synchronize();
    return own;
  }
  template <class T>
  T get(DevicePointer<T> value) {
    return get(value, 1).front();
  }
  template <class T>
  Matrix<T> get(const MatrixView<T>& view) {
    return Eigen::Map<const Matrix<T>>(get(view.data, view.size()).data(), view.rows, view.cols);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream = device->make_stream();
  LinearAlgebra& algebra = device->linear_algebra();
  std::vector<Buffer> buffers;
};

}  // namespace canzona::optimized::device_under_test
