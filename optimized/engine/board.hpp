// Where every rank stands: written by each as it goes, read by whoever waits too long for another.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/device/watch.hpp"
#include "reference/schedule/schedule.hpp"

namespace canzona::optimized {

/// Memory that ranks share: reading it needs nothing of those who wrote it. A rank whose memory others cannot see, as
/// it is on another machine, has no place.
class Board {
 public:
  /// One rank's entry. Zeroed memory is an entry.
  struct Place {
    std::atomic<std::int64_t> steps[kStreams];  // packed; 0 before the first
    std::atomic<std::int64_t> heard;            // nanoseconds of the host's monotonic clock
  };

  /// By rank; null where there is none.
  explicit Board(std::vector<Place*> places) : places_(std::move(places)) {}

  /// `rank` begins a step on a stream.
  void publish(int rank, canzona::Stream stream, const Action& action);
  /// `rank` lives: whoever waits for others says so again and again.
  void hear(int rank);

  /// "rank 3: Update(12) on compute, ReduceGradients(0) on dp".
  std::string describe(int rank) const;
  /// The ranks that have not been heard of for so long; those without a place are not among them.
  std::vector<int> silent(double seconds) const;

 private:
  Place* place(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

  std::vector<Place*> places_;
};

/// The watch of `rank` over a group of ranks, by member.
Watch make_watch(Board& board, int rank, const std::vector<int>& group, double deadline_seconds);

}  // namespace canzona::optimized
