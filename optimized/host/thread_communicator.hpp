// Ranks that are threads of one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "optimized/host/host_communicator.hpp"

namespace canzona::optimized {

/// What the ranks of one group share. A rank that waits longer than the deadline, or whose run was aborted, throws.
class ThreadGroup {
 public:
  /// `missing` puts into words which of the ranks (by member) have not come, and where they stand.
  ThreadGroup(int size, double deadline_seconds, const std::atomic<bool>& aborted,
              std::function<std::string(const std::vector<int>& missing)> describe);

  int size() const { return static_cast<int>(transfers_.size()); }

 private:
  friend class ThreadCommunicator;
  /// Returns when all members are here.
  void meet(int member);

  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<std::int64_t> arrivals_;  // by member
  bool broken_ = false;                 // a member gave up: nobody else goes on
  double deadline_seconds_;
  const std::atomic<bool>& aborted_;
  std::function<std::string(const std::vector<int>&)> describe_;
  std::vector<const Transfer*> transfers_;  // by member
  std::vector<const ExactSum*> sums_;       // by member
};

/// One member of a group; on one stream only.
class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int member) : group_(group), member_(member) {}

  int size() const override { return group_.size(); }
  int rank() const override { return member_; }
  void exchange(const Transfer& transfer) override;
  void exchange(const ExactSum& own, std::vector<ExactSum>& sums) override;

 private:
  ThreadGroup& group_;
  int member_;
};

}  // namespace canzona::optimized
