// Ranks on several machines read several clocks. What they measured is told on the first rank's.
#pragma once

#include <string>
#include <vector>

#include "optimized/engine/rank.hpp"

namespace canzona::harness {

/// When a rank came to a meeting of all and when it left, by its own clock, in seconds. Nobody leaves before all have
/// come.
struct Meeting {
  double came = 0;
  double left = 0;
};

/// By how much a clock is ahead of another, within ± `error` for certain.
struct ClockOffset {
  double seconds = 0;
  double error = 0;
};

/// What the same meetings say of `own` clock beside that of `first`: as he left after the other came, and the other
/// left after he came, own − first lies between max(own.came − first.left) and min(own.left − first.came).
ClockOffset offset_between(const std::vector<Meeting>& own, const std::vector<Meeting>& first);

/// Aligns a rank's clock with the first rank's. All ranks construct one and call alike.
class AlignedClock {
 public:
  explicit AlignedClock(optimized::Rank& rank);

  /// Compares the clocks anew, since they drift; costs nothing where all read the same.
  void align();
  /// Of this rank's clock, beside the first's.
  const ClockOffset& offset() const { return offset_; }

 private:
  optimized::Rank& rank_;
  bool is_shared_ = true;
  ClockOffset offset_;
};

}  // namespace canzona::harness
