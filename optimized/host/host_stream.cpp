#include "optimized/host/host_stream.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "optimized/device/host_clock.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {

double HostEvent::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

void HostEvent::synchronize() { wait_for(latest_record()); }

std::int64_t HostEvent::next_record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void HostEvent::pass(std::int64_t record) {
  const std::lock_guard lock(mutex_);
  done_ = record;
  seconds_ = host_seconds();
  passed_.notify_all();  // under the lock: whoever waits may then destroy the event
}

std::int64_t HostEvent::latest_record() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void HostEvent::wait_for(std::int64_t record) {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [&] { return done_ >= record; });
}

namespace {

/// Does at once what is given to it: the stream of a body that is repeated inside a task.
class ImmediateStream final : public Stream {
 public:
  void run(std::function<void()> task) override { task(); }
  void repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                    std::function<void(Stream&)> body) override {
    for (std::int64_t round = 0; round < most && *go.raw() != 0; ++round) body(*this);
  }
  void record(Event&) override { throw Error("a repeated body may not record an event"); }
  void wait(Event&) override { throw Error("a repeated body may not wait for an event"); }
  void synchronize() override {}
};

}  // namespace

HostStream::HostStream(ThreadTeam& team, Failure& failure)
    : team_(team), failure_(failure), worker_([this] { work(); }) {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void HostStream::run(std::function<void()> task) {
  push({.all = [this, task = std::move(task)] { attempt(task); }});
}

void HostStream::attempt(const std::function<void()>& task) {
  if (failure_.has_happened()) return;
  try {
    task();
  } catch (...) {
    failure_.keep(std::current_exception());
  }
}

void HostStream::run_pieces(std::int64_t count, std::function<void(std::int64_t begin, std::int64_t end)> task) {
  // A piece must be worth waking a helper for, and begins where a vector does.
  constexpr std::int64_t kSmallest = std::int64_t{1} << 16;
  constexpr std::int64_t kVector = 16;
  const std::int64_t pieces = std::clamp<std::int64_t>(count / kSmallest, 1, team_.size());
  const std::int64_t length = (count / pieces + kVector) / kVector * kVector;
  run([this, pieces, length, count, task = std::move(task)] {
    if (pieces == 1) return task(0, count);
    team_.run(pieces, [&](std::int64_t piece) {
      task(std::min(piece * length, count), std::min((piece + 1) * length, count));
    });
  });
}

void HostStream::run_each(std::int64_t count, std::function<void(std::int64_t index)> task) {
  push({.count = count, .one = std::move(task)});
}

void HostStream::run_together(const std::vector<Task>& tasks) {
  team_.run(tasks.front().count, [&](std::int64_t index) {
    for (const Task& task : tasks) attempt([&] { task.one(index); });
  });
}

void HostStream::repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                              std::function<void(Stream&)> body) {
  run([go, most, body = std::move(body)] { ImmediateStream().repeat_while(go, most, body); });
}

void HostStream::record(Event& event) {
  auto& own = static_cast<HostEvent&>(event);
  push({.all = [&own, record = own.next_record()] { own.pass(record); }});
}

void HostStream::wait(Event& event) {
  auto& own = static_cast<HostEvent&>(event);
  push({.all = [&own, record = own.latest_record()] { own.wait_for(record); }});
}

void HostStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !busy_; });
  failure_.rethrow();
}

void HostStream::push(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

std::vector<HostStream::Task> HostStream::take() {
  std::vector<Task> taken;
  do {
    taken.push_back(std::move(tasks_.front()));
    tasks_.pop_front();
  } while (taken.front().one && !tasks_.empty() && tasks_.front().one && tasks_.front().count == taken.front().count);
  return taken;
}

void HostStream::work() {
  pthread_setname_np(pthread_self(), "canzona-stream");  // for debuggers, top and tests
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::vector<Task> tasks = take();
    busy_ = true;
    lock.unlock();
    if (tasks.front().one) {
      run_together(tasks);
    } else {
      tasks.front().all();
    }
    lock.lock();
    busy_ = false;
    if (tasks_.empty()) changed_.notify_all();
  }
}

}  // namespace canzona::optimized
