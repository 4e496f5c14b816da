// One rank of a mesh: what it computes on, and whom it talks to.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "optimized/engine/backend.hpp"
#include "optimized/engine/board.hpp"
#include "reference/mesh/mesh.hpp"

namespace canzona::optimized {

class Rank {
 public:
  /// Groups talk over the platform's communicators, or over the host's where it has none.
  Rank(int own_index, Coordinate coordinate, Platform& platform, HostCommunicator& of_all, Communicator& of_dp,
       Communicator& of_tp, Board& shared_board)
      : index(own_index),
        at(coordinate),
        device(*platform.device),
        free_bytes(platform.free_bytes),
        world(of_all),
        dp(platform.dp ? *platform.dp : of_dp),
        tp(platform.tp ? *platform.tp : of_tp),
        board(shared_board) {}

  const int index;
  const Coordinate at;
  Device& device;
  const std::int64_t free_bytes;  ///< this rank's share of the device's memory that was free at the start
  HostCommunicator& world;  ///< all ranks, for whoever runs the rank: settings and results, not the schedule's data
  Communicator& dp;         ///< this rank's data-parallel group, for streams of that name
  Communicator& tp;         ///< its tensor-parallel group
  Board& board;

  /// Makes what lives until every rank has ended: others may read what it sends from where it lies.
  template <class T, class... Arguments>
  T& make(Arguments&&... arguments) {
    auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    kept_.push_back({made, [&own = *made] { own.finish(); }});
    return *made;
  }

  /// Waits until nothing that was made has work under way, whatever became of that work.
  void settle() noexcept {
    for (const Kept& own : kept_) {
      try {
        own.finish();
      } catch (...) {  // the rank has failed, and the first failure is told already
      }
    }
  }

 private:
  struct Kept {
    std::shared_ptr<void> made;
    std::function<void()> finish;
  };
  std::vector<Kept> kept_;
};

/// What every rank runs; the same on all of them.
using RankBody = std::function<void(Rank&)>;

}  // namespace canzona::optimized
