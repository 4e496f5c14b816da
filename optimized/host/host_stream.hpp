// Streams on worker threads of the host.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

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

/// One worker thread. After a task has thrown, the rest is dropped (records are passed, so that nobody waits for ever)
/// until synchronize() has rethrown.
class HostStream final : public Stream {
 public:
  /// Without a team, pieces are not cut. A team must outlive the stream.
  explicit HostStream(ThreadTeam* team = nullptr);
  ~HostStream() override;

  void run(std::function<void()> task) override;
  void run_pieces(std::int64_t count, std::function<void(std::int64_t begin, std::int64_t end)> task) override;
  void repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                    std::function<void(Stream&)> body) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

 private:
  void work();
  void push(std::function<void()> task);

  ThreadTeam* team_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
  bool closing_ = false;
  std::exception_ptr failure_;
  std::thread worker_;  // last: it uses what stands above
};

/// Seconds on the host's monotonic clock.
double host_seconds();

}  // namespace canzona::optimized
