// Allocation, poison and quarantine.
#include "tests/emulated_gpu/blocks.hpp"

#include <cstdlib>
#include <cstring>
#include <mutex>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace canzona::emulated_gpu {

namespace {

constexpr std::size_t kAlignment = 256;  // cudaMalloc's
constexpr int kPoison = 0xFF;            // NaN in every floating-point type

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

void* Blocks::allocate(std::size_t bytes, int device, std::size_t limit) {
  const std::lock_guard lock(mutex_);
  std::size_t& used = used_[device];
  if (bytes > limit || used > limit - bytes) return nullptr;
  void* address = nullptr;
  if (posix_memalign(&address, kAlignment, bytes) != 0) return nullptr;
  std::memset(address, kPoison, bytes);
  used += bytes;
  ++live_;
  blocks_[number(address)] = {.bytes = bytes, .device = device};
  return address;
}

bool Blocks::is_block(const void* address, bool pinned) const {
  const std::shared_lock lock(mutex_);
  const auto found = blocks_.find(number(address));
  return found != blocks_.end() && found->second.live && (found->second.device == kPinned) == pinned;
}

int Blocks::device_of(const void* address) const {
  const std::shared_lock lock(mutex_);
  return blocks_.at(number(address)).device;
}

bool Blocks::free(void* address) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_.at(number(address));
  if (!block.live) return false;
  std::memset(address, kPoison, block.bytes);
  ASAN_POISON_MEMORY_REGION(address, block.bytes);
  block.live = false;
  used_[block.device] -= block.bytes;
  --live_;
  return true;
}

Location Blocks::find(const void* address, std::size_t bytes) const {
  const std::shared_lock lock(mutex_);
  const std::uintptr_t begin = number(address);
  auto after = blocks_.upper_bound(begin);
  if (after == blocks_.begin()) return {};
  const auto& [start, block] = *--after;
  if (begin - start >= block.bytes) return {};
  if (!block.live) return {.place = Place::kFreed, .device = block.device};
  if (bytes > block.bytes - (begin - start)) return {.place = Place::kBeyondEnd, .device = block.device};
  return {.place = block.device == kPinned ? Place::kPinned : Place::kDevice, .device = block.device};
}

std::size_t Blocks::used(int device) const {
  const std::shared_lock lock(mutex_);
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

std::int64_t Blocks::live() const {
  const std::shared_lock lock(mutex_);
  return live_;
}

std::int64_t Blocks::all() const {
  const std::shared_lock lock(mutex_);
  return static_cast<std::int64_t>(blocks_.size());
}

void Blocks::reset() {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, block] : blocks_) {
    void* address = reinterpret_cast<void*>(start);
    ASAN_UNPOISON_MEMORY_REGION(address, block.bytes);
    std::free(address);
  }
  blocks_.clear();
  used_.clear();
  live_ = 0;
}

Blocks& blocks() {
  static auto* all = new Blocks;  // streams may use it until the process ends
  return *all;
}

}  // namespace canzona::emulated_gpu
