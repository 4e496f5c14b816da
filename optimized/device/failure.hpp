// The first failure of a device, kept for whoever asks.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

namespace canzona::optimized {

/// It stays, as CUDA's do: after it, whatever any stream is given is dropped, so that nothing is done to memory that a
/// failed step left halfway.
class Failure {
 public:
  void keep(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(failure);
    happened_ = true;
  }
  bool has_happened() const { return happened_; }
  /// Rethrows it, if there is one.
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (first_) std::rethrow_exception(first_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> happened_ = false;
};

}  // namespace canzona::optimized
