// Threads of the host that do the pieces of one task side by side. For the host's device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace canzona::optimized {

/// A caller and size − 1 helpers, who sleep between tasks: neither OpenMP's nor OpenBLAS's threads, which go on
/// spinning after their work, are in the way of the others.
class ThreadTeam {
 public:
  explicit ThreadTeam(int size);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const { return static_cast<int>(helpers_.size()) + 1; }

  /// piece(index) for every index in [0, count), each on some thread; returns when all are done. One task at a time:
  /// others wait. `piece` does not throw.
  void run(std::int64_t count, const std::function<void(std::int64_t index)>& piece);

 private:
  void help();

  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  const std::function<void(std::int64_t)>* piece_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  std::int64_t task_ = 0;  // counts tasks, so that a helper knows a new one
  int busy_ = 0;           // helpers not yet done with the current task
  bool closing_ = false;
  std::vector<std::thread> helpers_;  // last: they use what stands above
};

}  // namespace canzona::optimized
