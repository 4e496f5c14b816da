#include "optimized/host/thread_team.hpp"

namespace canzona::optimized {

ThreadTeam::ThreadTeam(int size) {
  for (int helper = 1; helper < size; ++helper) helpers_.emplace_back([this] { help(); });
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  begun_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::run(std::int64_t count, const std::function<void(std::int64_t index)>& piece) {
  if (helpers_.empty() || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index) piece(index);
    return;
  }
  const std::lock_guard caller(callers_);
  {
    const std::lock_guard lock(mutex_);
    piece_ = &piece;
    count_ = count;
    next_ = 0;
    busy_ = static_cast<int>(helpers_.size());
    ++task_;
  }
  begun_.notify_all();
  for (std::int64_t index = next_++; index < count; index = next_++) piece(index);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadTeam::help() {
  std::unique_lock lock(mutex_);
  for (std::int64_t seen = 0;;) {
    begun_.wait(lock, [&] { return closing_ || task_ != seen; });
    if (closing_) return;
    seen = task_;
    lock.unlock();
    for (std::int64_t index = next_++; index < count_; index = next_++) (*piece_)(index);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace canzona::optimized
