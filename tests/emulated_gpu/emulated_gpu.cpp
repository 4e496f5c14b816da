// Settings, complaints and planted faults.
#include "tests/emulated_gpu/emulated_gpu.hpp"

#include <atomic>
#include <mutex>
#include <utility>

#include "tests/emulated_gpu/internal.hpp"

namespace canzona::emulated_gpu {

namespace {

struct State {
  Settings settings;
  std::mutex mutex;
  std::vector<std::string> complaints;
  std::atomic<std::int64_t> waits_before_forgotten = -1;
  std::atomic<bool> factorization_fails = false;
};

State& state() {
  static State all;
  return all;
}

}  // namespace

const Settings& settings() { return state().settings; }

void complain(std::string text) {
  const std::lock_guard lock(state().mutex);
  state().complaints.push_back(std::move(text));
}

std::vector<std::string> complaints() {
  const std::lock_guard lock(state().mutex);
  return state().complaints;
}

void forget_complaints() {
  const std::lock_guard lock(state().mutex);
  state().complaints.clear();
}

// Relaxed throughout: a planted fault must not order the threads that ask for it.
void forget_waits(int nth) { state().waits_before_forgotten.store(nth, std::memory_order_relaxed); }

std::int64_t waits_before_forgotten() { return state().waits_before_forgotten.load(std::memory_order_relaxed); }

bool forgets_this_wait(int device) {
  std::atomic<std::int64_t>& left = state().waits_before_forgotten;
  if (device != 0 || left.load(std::memory_order_relaxed) < 0) return false;
  return left.fetch_sub(1, std::memory_order_relaxed) == 0;
}

void fail_next_factorization() { state().factorization_fails.store(true, std::memory_order_relaxed); }

bool fails_this_factorization() {
  std::atomic<bool>& fails = state().factorization_fails;
  return fails.load(std::memory_order_relaxed) && fails.exchange(false, std::memory_order_relaxed);
}

void reset(const Settings& settings) {
  reset_streams();
  reset_events();
  reset_communicators();
  reset_memory();
  state().settings = settings;
  state().waits_before_forgotten = -1;
  state().factorization_fails = false;
  forget_complaints();
}

}  // namespace canzona::emulated_gpu
