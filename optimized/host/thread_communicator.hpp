// Ranks that are threads of one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "optimized/device/watch.hpp"
#include "optimized/host/host_communicator.hpp"

namespace canzona::optimized {

/// What the ranks of one group share.
class ThreadGroup {
 public:
  /// Whoever waits when `aborted` is set gives up.
  ThreadGroup(int size, const std::atomic<bool>& aborted);

  int size() const { return static_cast<int>(transfers_.size()); }

 private:
  friend class ThreadCommunicator;
  /// Returns when all members are here. Throws Error after the deadline, and when another member gave up.
  void meet(int member, const Watch& watch);

  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<std::int64_t> arrivals_;  // by member
  bool broken_ = false;                 // a member gave up: nobody else goes on
  const std::atomic<bool>& aborted_;
  std::vector<const Transfer*> transfers_;  // by member
};

/// One member of a group; on one stream only.
class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int member, Watch watch)
      : group_(group), member_(member), watch_(std::move(watch)) {}

  int size() const override { return group_.size(); }
  int rank() const override { return member_; }
  void exchange(const Transfer& transfer) override;

 private:
  ThreadGroup& group_;
  int member_;
  Watch watch_;
};

}  // namespace canzona::optimized
