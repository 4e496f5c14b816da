// Where the streams of a communicator's ranks meet, and its error.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/emulated_gpu/operations.hpp"

namespace canzona::emulated_gpu {

/// What one rank enqueues as one: a single operation, or a group's operations on one communicator.
struct Batch {
  std::vector<Operation> collectives;
  std::vector<Operation> transfers;
};

/// Collectives meet all ranks, transfers the other rank alone; nobody leaves before its batch has moved. Only streams
/// take the mutex, and callers that abort or drain: asking for the error orders nobody.
class Exchange {
 public:
  explicit Exchange(int ranks);

  /// The rank's batches go in the order of their numbers, 0 upwards. Returns when the batch is done, or at a failure.
  void meet(int rank, std::int64_t number, const Batch& batch);
  /// Waits until all batches of the rank before `number` have left.
  void drain(int rank, std::int64_t number);
  /// The first failure stays.
  void fail(ncclResult_t error, std::string text);
  /// ncclSuccess if none.
  ncclResult_t error() const;
  /// Empty if there is no error. It stays where it is.
  const std::string& text() const;

 private:
  /// A rank whose stream is in `meet`.
  struct Visit {
    const Batch* batch = nullptr;
    bool awaits_all = false;
    std::set<int> awaited;  // the other ends of transfers
    bool is_done() const { return !awaits_all && awaited.empty(); }
  };

  // All with `mutex_` held.
  bool has_failed() const { return error() != ncclSuccess; }
  void fail_locked(ncclResult_t error, std::string text);
  void move_collectives();
  void move_transfers(int a, int b);
  void find_deadlock();
  bool is_stuck(int rank, const std::vector<bool>& may_go_on) const;
  std::string name_stuck(int rank) const;

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Visit> visits_;
  std::vector<std::int64_t> turn_;
  std::atomic<ncclResult_t> error_ = ncclSuccess;
  std::string text_;
};

}  // namespace canzona::emulated_gpu
