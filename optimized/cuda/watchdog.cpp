#include "optimized/cuda/watchdog.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kImpatient = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(20);
constexpr auto kRound = std::chrono::milliseconds(1);

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

void Watchdog::wait(const std::function<bool()>& is_done) {
  try {
    const auto begin = Clock::now();
    auto next_round = begin + kRound;
    while (!is_done()) {
      if (Clock::now() >= next_round) {
        next_round = Clock::now() + kRound;
        look_around(seconds_since(begin));
      }
      // What takes microseconds is asked for at once, what takes longer leaves the core to others.
      if (Clock::now() - begin > kImpatient) std::this_thread::sleep_for(kNap);
    }
    // What was dropped after a failure is done, too.
    for (const Suspect& suspect : suspects_) suspect.ask();
  } catch (...) {
    for (const Suspect& suspect : suspects_) suspect.abort();
    throw;
  }
}

void Watchdog::look_around(double waited) const {
  watch_.alive();
  for (const Suspect& suspect : suspects_) suspect.ask();
  if (watch_.is_over()) throw GaveUpAfterOthers("another rank has given up");
  if (waited > watch_.deadline_seconds)
    throw Error(fmt::format("waited {} s for {}", watch_.deadline_seconds, watch_.describe({})));
}

}  // namespace canzona::optimized
