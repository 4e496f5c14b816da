// Where every rank stands: written by each as it goes, read by whoever waits too long for another.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "reference/schedule/schedule.hpp"

namespace canzona::optimized {

/// Shared by ranks that are threads of one process.
class Board {
 public:
  explicit Board(int ranks) : places_(static_cast<std::size_t>(ranks) * kStreams) {}

  void publish(int rank, canzona::Stream stream, const Action& action) {
    places_[index(rank, stream)] = 1 + static_cast<int>(action.index());
  }

  /// "rank 3: Update on compute, ReduceGradients on dp".
  std::string describe(int rank) const;

 private:
  static std::size_t index(int rank, canzona::Stream stream) {
    return static_cast<std::size_t>(rank) * kStreams + static_cast<std::size_t>(stream);
  }

  std::vector<std::atomic<int>> places_;  // 1 + the kind of the step; 0 before the first
};

}  // namespace canzona::optimized
