// Streams on worker threads of the host.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "optimized/device/failure.hpp"
#include "optimized/device/stream.hpp"
#include "optimized/host/thread_team.hpp"

namespace canzona::optimized {

/// Records are numbered: a wait is for the number that was the latest when it was asked for.
class HostEvent final : public Event {
 public:
  double seconds() const override;
  void synchronize() override;

 private:
  friend class HostStream;
  std::int64_t next_record();
  void pass(std::int64_t record);
  std::int64_t latest_record() const;
  void wait_for(std::int64_t record);

  mutable std::mutex mutex_;
  std::condition_variable passed_;
  std::int64_t recorded_ = 0;
  std::int64_t done_ = 0;
  double seconds_ = 0;
};

/// One worker thread. Of a device that has failed, records are still passed, so that nobody waits for ever.
class HostStream final : public Stream {
 public:
  /// Pieces are cut for the team. Both must outlive the stream.
  HostStream(ThreadTeam& team, Failure& failure);
  ~HostStream() override;

  void run(std::function<void()> task) override;
  void run_pieces(std::int64_t count, std::function<void(std::int64_t begin, std::int64_t end)> task) override;
  /// An index goes through all the calls that are waiting while the caches still hold what is its own.
  void run_each(std::int64_t count, std::function<void(std::int64_t index)> task) override;
  void repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                    std::function<void(Stream&)> body) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

 private:
  /// Of one call: `all`, or `one` of every index.
  struct Task {
    std::function<void()> all = nullptr;
    std::int64_t count = 0;
    std::function<void(std::int64_t index)> one = nullptr;
  };

  void work();
  void push(Task task);
  /// The oldest task; of run_each's, all that follow with its count. `mutex_` is held.
  std::vector<Task> take();
  void run_together(const std::vector<Task>& tasks);
  void attempt(const std::function<void()>& task);

  ThreadTeam& team_;
  Failure& failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool busy_ = false;
  bool closing_ = false;
  std::thread worker_;  // last: it uses what stands above
};

}  // namespace canzona::optimized
