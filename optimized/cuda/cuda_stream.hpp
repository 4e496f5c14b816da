// CUDA's streams and events.
#pragma once

#include <cuda_runtime_api.h>

#include "optimized/cuda/watchdog.hpp"
#include "optimized/device/failure.hpp"
#include "optimized/device/kernel.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// Turns CUDA's differences between events, floats of milliseconds, into seconds on the host's clock, which ranks on
/// one machine share: within the time that a wait for an event takes to return.
class CudaClock {
 public:
  explicit CudaClock(cudaStream_t stream);
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  ~CudaClock();

  double seconds(cudaEvent_t event);

 private:
  void set_base();

  cudaStream_t stream_;
  cudaEvent_t base_ = nullptr;
  double base_seconds_ = 0;
};

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaClock& clock, Watchdog& watchdog);
  ~CudaEvent() override;

  double seconds() const override { return clock_.seconds(event_); }
  void synchronize() override;
  cudaEvent_t get() const { return event_; }

 private:
  CudaClock& clock_;
  Watchdog& watchdog_;
  cudaEvent_t event_ = nullptr;
};

/// Everything here must outlive the stream.
class CudaStream final : public Stream {
 public:
  CudaStream(cudaStream_t stream, Buffer partials, Failure& failure, Watchdog& watchdog);
  ~CudaStream() override;

  const GpuQueue* gpu() const override { return &queue_; }
  void run(std::function<void()> task) override;
  /// Blocks the caller before every round.
  void repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                    std::function<void(Stream&)> body) override;
  std::unique_ptr<Graph> capture(const std::function<void()>& body) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

 private:
  GpuQueue queue_;
  Buffer partials_;
  std::int32_t* go_ = nullptr;  ///< pinned
  Failure& failure_;
  Watchdog& watchdog_;
};

/// The CUDA stream behind one of a CUDA device.
inline cudaStream_t native(const Stream& stream) { return stream.gpu()->stream; }

cudaStream_t make_cuda_stream();

}  // namespace canzona::optimized
