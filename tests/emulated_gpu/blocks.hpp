// The table of blocks of memory, live and freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

namespace canzona::emulated_gpu {

constexpr int kPinned = -1;

enum class Place { kElsewhere, kDevice, kPinned, kFreed, kBeyondEnd };

struct Location {
  Place place = Place::kElsewhere;
  int device = kPinned;
};

/// A freed block stays, filled with 0xFF, until `reset`. Look-ups share the lock: they order nobody.
class Blocks {
 public:
  /// nullptr where the limit is passed. The block is filled with 0xFF; `device` may be kPinned.
  void* allocate(std::size_t bytes, int device, std::size_t limit);
  bool is_block(const void* address, bool pinned) const;
  /// The device, or kPinned, of a live block.
  int device_of(const void* address) const;
  /// False if it is no live block any more.
  bool free(void* address);
  Location find(const void* address, std::size_t bytes) const;
  std::size_t used(int device) const;
  std::int64_t live() const;
  std::int64_t all() const;
  void reset();

 private:
  struct Block {
    std::size_t bytes = 0;
    int device = kPinned;
    bool live = true;
  };

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<int, std::size_t> used_;
  std::int64_t live_ = 0;
};

Blocks& blocks();

}  // namespace canzona::emulated_gpu
