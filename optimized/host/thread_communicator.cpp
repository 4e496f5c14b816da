#include "optimized/host/thread_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "reference/core/error.hpp"

namespace canzona::optimized {

ThreadGroup::ThreadGroup(int size, const std::atomic<bool>& aborted)
    : arrivals_(static_cast<std::size_t>(size), 0),
      aborted_(aborted),
      transfers_(static_cast<std::size_t>(size), nullptr) {}

void ThreadGroup::meet(int member, const Watch& watch) {
  std::unique_lock lock(mutex_);
  const std::int64_t meeting = ++arrivals_[member];
  met_.notify_all();
  const auto all_here = [&] {
    return std::all_of(arrivals_.begin(), arrivals_.end(), [&](std::int64_t arrived) { return arrived >= meeting; });
  };
  constexpr auto kGlance = std::chrono::milliseconds(50);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(watch.deadline_seconds);
  while (!met_.wait_for(lock, kGlance, all_here)) {
    watch.alive();
    if (aborted_ || broken_) throw GaveUpAfterOthers("another rank gave up");
    if (std::chrono::steady_clock::now() < end) continue;
    broken_ = true;
    std::vector<int> missing;
    for (std::size_t other = 0; other < arrivals_.size(); ++other) {
      if (arrivals_[other] < meeting) missing.push_back(static_cast<int>(other));
    }
    throw Error(fmt::format("waited {} s for {}", watch.deadline_seconds, watch.describe(missing)));
  }
  if (broken_) throw GaveUpAfterOthers("another rank gave up");
}

void ThreadCommunicator::exchange(const Transfer& transfer) {
  group_.transfers_[member_] = &transfer;
  group_.meet(member_, watch_);
  for (int sender = 0; sender < size(); ++sender) {
    const auto& sent = group_.transfers_[sender]->send[member_];
    const auto& received = transfer.receive[sender];
    if (sent.size() != received.size())
      throw Error(fmt::format("member {} sends {} pieces, {} were expected", sender, sent.size(), received.size()));
    for (std::size_t piece = 0; piece < sent.size(); ++piece) {
      if (sent[piece].bytes != received[piece].bytes)
        throw Error(
            fmt::format("a piece of {} bytes where {} were expected", sent[piece].bytes, received[piece].bytes));
      std::copy_n(sent[piece].data.raw(), sent[piece].bytes, received[piece].data.raw());
    }
  }
  group_.meet(member_, watch_);
}

}  // namespace canzona::optimized
