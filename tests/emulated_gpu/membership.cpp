// Joining and splitting.
#include "tests/emulated_gpu/membership.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <tuple>

namespace canzona::emulated_gpu {

template <class Condition>
ncclResult_t Membership::wait(std::unique_lock<std::mutex>& lock, Condition condition) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLimit = std::chrono::seconds(60);
  constexpr auto kLook = std::chrono::milliseconds(5);  // failures do not notify
  const auto end = Clock::now() + kLimit;
  while (!changed_.wait_for(lock, kLook, condition)) {
    if (exchange_.error() != ncclSuccess) return exchange_.error();
    if (Clock::now() < end) continue;
    exchange_.fail(ncclSystemError, "a rank waited a minute for the others");
  }
  return ncclSuccess;  // whatever a rank that was faster has done since
}

ncclResult_t Membership::join(int rank, int device, bool blocks) {
  std::unique_lock lock(mutex_);
  int& own = devices_[static_cast<std::size_t>(rank)];
  if (own != kAway) return ncclInvalidUsage;
  own = device;
  if (std::find(devices_.begin(), devices_.end(), kAway) == devices_.end()) {
    if (std::set(devices_.begin(), devices_.end()).size() < devices_.size()) {
      exchange_.fail(ncclInvalidUsage, "two ranks are on one device");
    } else {
      complete_.store(true, std::memory_order_release);
      changed_.notify_all();
    }
  }
  return blocks ? wait(lock, [&] { return is_complete(); }) : ncclInProgress;
}

ncclResult_t Membership::split(int rank, int color, int key, Part& part) {
  std::unique_lock lock(mutex_);
  if (exchange_.error() != ncclSuccess) return exchange_.error();
  if (!open_split_) open_split_ = std::make_shared<Split>();
  const std::shared_ptr<Split> split = open_split_;
  split->wishes.push_back({color, key, rank});
  if (split->wishes.size() == static_cast<std::size_t>(ranks_)) {
    conclude(*split);
    open_split_ = nullptr;
    changed_.notify_all();
  }
  const ncclResult_t result = wait(lock, [&] { return !split->parts.empty(); });
  if (result == ncclSuccess) part = split->parts[static_cast<std::size_t>(rank)];
  return result;
}

void Membership::conclude(Split& split) const {
  auto& wishes = split.wishes;
  std::sort(wishes.begin(), wishes.end(), [](const auto& a, const auto& b) {
    return std::tie(a.color, a.key, a.rank) < std::tie(b.color, b.key, b.rank);
  });
  split.parts.resize(wishes.size());
  for (auto begin = wishes.begin(); begin != wishes.end();) {
    const auto end = std::find_if(begin, wishes.end(), [&](const auto& wish) { return wish.color != begin->color; });
    if (begin->color != NCCL_SPLIT_NOCOLOR) {
      const auto members = std::make_shared<Membership>(static_cast<int>(end - begin));
      members->complete_ = true;
      for (auto wish = begin; wish != end; ++wish) {
        split.parts[static_cast<std::size_t>(wish->rank)] = {members, static_cast<int>(wish - begin)};
      }
    }
    begin = end;
  }
}

}  // namespace canzona::emulated_gpu
