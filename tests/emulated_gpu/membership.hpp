// How the host threads of a communicator's ranks find each other: at its creation, and when it is split.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/emulated_gpu/exchange.hpp"

namespace canzona::emulated_gpu {

class Membership {
 public:
  explicit Membership(int ranks) : ranks_(ranks), exchange_(ranks), devices_(static_cast<std::size_t>(ranks), kAway) {}

  int ranks() const { return ranks_; }
  Exchange& exchange() { return exchange_; }
  const Exchange& exchange() const { return exchange_; }
  bool is_complete() const { return complete_.load(std::memory_order_acquire); }

  /// Every rank on a device of its own. Blocks until all have come, for at most a minute, if it shall.
  ncclResult_t join(int rank, int device, bool blocks);

  struct Part {
    std::shared_ptr<Membership> members;  // null for NCCL_SPLIT_NOCOLOR
    int rank = 0;
  };
  /// Blocks as `join` does. Ranks of one color, by key and then by rank.
  ncclResult_t split(int rank, int color, int key, Part& part);

 private:
  static constexpr int kAway = -1;

  /// One call of ncclCommSplit by all ranks.
  struct Split {
    struct Wish {
      int color;
      int key;
      int rank;
    };
    std::vector<Wish> wishes;
    std::vector<Part> parts;  // by rank, once all wishes are there
  };

  /// Until the condition holds or the communicator fails.
  template <class Condition>
  ncclResult_t wait(std::unique_lock<std::mutex>& lock, Condition condition);
  void conclude(Split& split) const;

  const int ranks_;
  Exchange exchange_;
  std::mutex mutex_;  // never held by a stream
  std::condition_variable changed_;
  std::vector<int> devices_;
  std::atomic<bool> complete_ = false;
  std::shared_ptr<Split> open_split_;
};

}  // namespace canzona::emulated_gpu
