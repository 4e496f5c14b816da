// Device memory: owned by buffers, pointed at without a host dereference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace canzona::optimized {

/// An address on a device. The host may move it but not look behind it; kernels and backends use raw().
template <class T>
class DevicePointer {
 public:
  DevicePointer() = default;
  explicit DevicePointer(T* address) : address_(address) {}
  /// T* → const T*
  template <class Other, class = std::enable_if_t<std::is_convertible_v<Other*, T*>>>
  DevicePointer(DevicePointer<Other> other) : address_(other.raw()) {}  // NOLINT(google-explicit-constructor)

  T* raw() const { return address_; }
  DevicePointer operator+(std::int64_t elements) const { return DevicePointer(address_ + elements); }
  explicit operator bool() const { return address_ != nullptr; }

 private:
  T* address_ = nullptr;
};

/// Owns memory of one device; freed when it goes. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* address, std::size_t bytes, std::function<void(void*)> release)
      : address_(address), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (address_ != nullptr) release_(address_);
  }

  std::size_t bytes() const { return bytes_; }
  /// To be called when it goes.
  void tell_release(std::function<void()> told) {
    release_ = [release = std::move(release_), told = std::move(told)](void* address) {
      release(address);
      told();
    };
  }
  template <class T>
  DevicePointer<T> as() const {
    return DevicePointer<T>(static_cast<T*>(address_));
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }

  void* address_ = nullptr;
  std::size_t bytes_ = 0;
  std::function<void(void*)> release_;
};

}  // namespace canzona::optimized
