// A GPU as a device.
#pragma once

#include <memory>

#include "optimized/cuda/cuda_linear_algebra.hpp"
#include "optimized/cuda/cuda_stream.hpp"
#include "optimized/device/device.hpp"
#include "reference/core/options.hpp"

namespace canzona::optimized {

/// Throws InputError, in one line, where there is no driver or no GPU.
int count_gpus();

/// Of the options of backend cuda.
CudaSettings cuda_settings(const Options& options);

/// Used by one thread; that thread's GPU becomes this one.
class CudaDevice final : public Device {
 public:
  CudaDevice(int index, Watch watch, const CudaSettings& settings = {});
  ~CudaDevice() override;

  std::string name() const override;
  void begin_range(const std::string& name) override;
  void end_range() override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  LinearAlgebra& linear_algebra() override { return linear_algebra_; }
  void copy(Stream& stream, const void* from, void* to, std::size_t bytes) override;
  void copy(Stream& stream, DevicePointer<const float> from, std::int64_t from_pitch, DevicePointer<float> to,
            std::int64_t to_pitch, std::int64_t width, std::int64_t rows) override;

  std::int64_t free_bytes() const;
  /// As no other GPU has it.
  std::string uuid() const;
  Watchdog& watchdog() { return watchdog_; }

 private:
  Buffer make_buffer(std::size_t bytes) override;
  Buffer make_host_buffer(std::size_t bytes) override;

  cudaStream_t own_stream_;  ///< for zeroing memory and telling the time
  CudaClock clock_{own_stream_};
  Failure failure_;
  Watchdog watchdog_;
  CudaLinearAlgebra linear_algebra_;
};

}  // namespace canzona::optimized
