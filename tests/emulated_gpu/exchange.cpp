// Meeting, comparing and moving.
#include "tests/emulated_gpu/exchange.hpp"

#include <algorithm>
#include <utility>

namespace canzona::emulated_gpu {

namespace {

std::string name(int rank) { return "rank " + std::to_string(rank); }

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

std::string differ(int rank, const std::string& does, int other, const std::string& other_does) {
  return name(rank) + " " + does + " where " + name(other) + " " + other_does;
}

/// Empty if both ranks call the same collectives in the same order.
std::string difference(int rank, const std::vector<Operation>& own, int other, const std::vector<Operation>& others) {
  for (std::size_t i = 0; i < std::max(own.size(), others.size()); ++i) {
    if (i >= own.size()) return differ(rank, "has no more calls in its group", other, describe(others[i]));
    if (i >= others.size()) return differ(rank, describe(own[i]), other, "has no more calls in its group");
    if (agree(own[i], others[i])) continue;
    const bool looks_equal = describe(own[i]) == describe(others[i]);
    const auto text = looks_equal ? describe_fully : describe;
    return differ(rank, text(own[i]), other, text(others[i]));
  }
  return "";
}

std::vector<Operation> transfers_with(const Batch& batch, Kind kind, int peer) {
  std::vector<Operation> found;
  std::copy_if(batch.transfers.begin(), batch.transfers.end(), std::back_inserter(found),
               [&](const Operation& transfer) { return transfer.kind == kind && transfer.peer == peer; });
  return found;
}

/// Empty if every send has its receive, with the same count and type.
std::string difference_of_transfers(int from, const std::vector<Operation>& sends, int to,
                                    const std::vector<Operation>& receives) {
  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i >= sends.size()) return differ(to, describe(receives[i]), from, "sends it nothing in that group");
    if (i >= receives.size()) return differ(from, describe(sends[i]), to, "receives nothing from it in that group");
    if (sends[i].count != receives[i].count || sends[i].type != receives[i].type) {
      return differ(from, describe(sends[i]), to, describe(receives[i]));
    }
  }
  return "";
}

}  // namespace

Exchange::Exchange(int ranks) : ranks_(ranks), visits_(index(ranks)), turn_(index(ranks), 0) {}

void Exchange::meet(int rank, std::int64_t number, const Batch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_[index(rank)] == number || has_failed(); });
  if (has_failed()) return;
  Visit& visit = visits_[index(rank)];
  visit.batch = &batch;
  visit.awaits_all = !batch.collectives.empty();
  for (const Operation& transfer : batch.transfers) visit.awaited.insert(transfer.peer);
  move_collectives();
  for (const Operation& transfer : batch.transfers) move_transfers(rank, transfer.peer);
  find_deadlock();
  changed_.notify_all();
  changed_.wait(lock, [&] { return visit.is_done() || has_failed(); });
  visit = {};
  ++turn_[index(rank)];
  changed_.notify_all();
}

void Exchange::drain(int rank, std::int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_[index(rank)] >= number || has_failed(); });
}

void Exchange::move_collectives() {
  if (!std::all_of(visits_.begin(), visits_.end(), [](const Visit& visit) { return visit.awaits_all; })) return;
  const std::vector<Operation>& first = visits_.front().batch->collectives;
  for (int rank = 1; rank < ranks_; ++rank) {
    std::string text = difference(rank, visits_[index(rank)].batch->collectives, 0, first);
    if (!text.empty()) return fail_locked(ncclInvalidUsage, std::move(text));
  }
  for (std::size_t call = 0; call < first.size(); ++call) {
    std::vector<const Operation*> of_ranks;
    for (const Visit& visit : visits_) of_ranks.push_back(&visit.batch->collectives[call]);
    move_collective(of_ranks);
  }
  for (Visit& visit : visits_) visit.awaits_all = false;
}

void Exchange::move_transfers(int a, int b) {
  Visit& own = visits_[index(a)];
  Visit& other = visits_[index(b)];
  if (has_failed() || !own.awaited.contains(b) || !other.awaited.contains(a)) return;
  const auto [low, high] = std::minmax({a, b});
  for (const auto& [from, to] : {std::pair(low, high), std::pair(high, low)}) {
    const auto sends = transfers_with(*visits_[index(from)].batch, Kind::kSend, to);
    const auto receives = transfers_with(*visits_[index(to)].batch, Kind::kReceive, from);
    std::string text = difference_of_transfers(from, sends, to, receives);
    if (!text.empty()) return fail_locked(ncclInvalidUsage, std::move(text));
    for (std::size_t i = 0; i < sends.size(); ++i) move_transfer(sends[i], receives[i]);
    if (a == b) break;
  }
  own.awaited.erase(b);
  other.awaited.erase(a);
}

bool Exchange::is_stuck(int rank, const std::vector<bool>& may_go_on) const {
  const Visit& visit = visits_[index(rank)];
  for (int other = 0; other < ranks_; ++other) {
    const bool awaited = (visit.awaits_all && !visits_[index(other)].awaits_all) || visit.awaited.contains(other);
    if (awaited && !may_go_on[index(other)]) return true;
  }
  return false;
}

/// A rank that is away may still bring anything. Of the others, one may go on if all may that it waits for; who never
/// can waits in a circle.
void Exchange::find_deadlock() {
  if (has_failed()) return;
  std::vector<bool> may_go_on(index(ranks_));
  for (int round = 0; round <= ranks_; ++round) {
    for (int rank = 0; rank < ranks_; ++rank) {
      may_go_on[index(rank)] = visits_[index(rank)].batch == nullptr || !is_stuck(rank, may_go_on);
    }
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!may_go_on[index(rank)]) return fail_locked(ncclInvalidUsage, name_stuck(rank));
  }
}

std::string Exchange::name_stuck(int rank) const {
  const Visit& visit = visits_[index(rank)];
  const auto call_of = [&](int other) {
    const Batch& batch = *visits_[index(other)].batch;
    return describe(batch.collectives.empty() ? batch.transfers.front() : batch.collectives.front());
  };
  for (const Operation& transfer : visit.batch->transfers) {
    const int other = transfer.peer;
    if (!visit.awaited.contains(other) || visits_[index(other)].batch == nullptr) continue;
    return differ(rank, describe(transfer), other, call_of(other));
  }
  for (int other = 0; other < ranks_; ++other) {
    if (visits_[index(other)].batch == nullptr || visits_[index(other)].awaits_all) continue;
    return differ(rank, call_of(rank), other, call_of(other));
  }
  return name(rank) + " waits in a circle";
}

void Exchange::fail(ncclResult_t error, std::string text) {
  const std::lock_guard lock(mutex_);
  fail_locked(error, std::move(text));
}

void Exchange::fail_locked(ncclResult_t error, std::string text) {
  if (has_failed()) return;
  text_ = std::move(text);
  error_.store(error, std::memory_order_release);
  changed_.notify_all();
}

ncclResult_t Exchange::error() const {
  if (error_.load(std::memory_order_relaxed) == ncclSuccess) return ncclSuccess;
  return error_.load(std::memory_order_acquire);
}

const std::string& Exchange::text() const {
  static const std::string kNone;
  return error() == ncclSuccess ? kNone : text_;
}

}  // namespace canzona::emulated_gpu
