// What a rank computes on. The host's device and CUDA's differ behind this interface only.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "optimized/device/ledger.hpp"
#include "optimized/device/linear_algebra.hpp"
#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Zeroed memory. Counted: nothing may be allocated inside an iteration.
  Buffer allocate(std::size_t bytes) {
    ++allocations_;
    Buffer buffer = make_buffer(bytes);
    const auto count = static_cast<std::int64_t>(bytes);
    ledger_->add(purpose_, count);
    buffer.tell_release([ledger = ledger_, purpose = purpose_, count] { ledger->add(purpose, -count); });
    return buffer;
  }
  template <class T>
  Buffer allocate_elements(std::int64_t count) {
    return allocate(static_cast<std::size_t>(count) * sizeof(T));
  }
  /// Zeroed memory of the host that copies reach without anybody waiting (pinned, on a GPU); counted too.
  Buffer allocate_on_host(std::size_t bytes) {
    ++allocations_;
    return make_host_buffer(bytes);
  }
  std::int64_t allocations() const { return allocations_; }
  /// Of the memory that has not been given back, the host's not among it.
  const Ledger& taken() const { return *ledger_; }
  /// While one lives, memory is taken for this.
  class Taking {
   public:
    Taking(Device& device, Purpose purpose) : device_(device), before_(device.purpose_) { device_.purpose_ = purpose; }
    Taking(const Taking&) = delete;
    Taking& operator=(const Taking&) = delete;
    ~Taking() { device_.purpose_ = before_; }

   private:
    Device& device_;
    Purpose before_;
  };
  /// Or only counts memory, so that there is no use in filling it.
  virtual bool holds_values() const { return true; }

  /// What it is called, where it is not the machine itself.
  virtual std::string name() const { return {}; }
  /// Between the two, a profiler shows what is put on streams under this name.
  virtual void begin_range(const std::string& /*name*/) {}
  virtual void end_range() {}

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual LinearAlgebra& linear_algebra() = 0;
  /// Between host and device, or within it; asynchronous on the stream, but to or from other memory of the host than
  /// allocate_on_host gave it may block the caller.
  virtual void copy(Stream& stream, const void* from, void* to, std::size_t bytes) = 0;
  /// A rectangle of rows of `width` elements that stand so many elements apart, within the device.
  virtual void copy(Stream& stream, DevicePointer<const float> from, std::int64_t from_pitch, DevicePointer<float> to,
                    std::int64_t to_pitch, std::int64_t width, std::int64_t rows) = 0;

 private:
  virtual Buffer make_buffer(std::size_t bytes) = 0;
  virtual Buffer make_host_buffer(std::size_t bytes) = 0;
  std::atomic<std::int64_t> allocations_ = 0;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();  // buffers may outlive the device
  Purpose purpose_ = Purpose::libraries;
};

}  // namespace canzona::optimized
