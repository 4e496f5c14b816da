#include "optimized/engine/threads.hpp"

#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <numeric>
#include <thread>

#include "optimized/host/thread_communicator.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

/// The groups of a mesh, each with its ranks.
class Groups {
 public:
  Groups(const Mesh& mesh, const std::atomic<bool>& aborted) : aborted_(aborted) {
    std::vector<int> all(static_cast<std::size_t>(mesh.ranks()));
    std::iota(all.begin(), all.end(), 0);
    world_.emplace_back(std::move(all), aborted);
    for (int index = 0; index < mesh.tp; ++index) dp_.emplace_back(mesh.dp_group(mesh.rank({0, index, 0})), aborted);
    for (int index = 0; index < mesh.dp; ++index) tp_.emplace_back(mesh.tp_group(mesh.rank({index, 0, 0})), aborted);
  }

  /// A rank's communicators, which live as long as the groups.
  struct Own {
    std::unique_ptr<ThreadCommunicator> world, dp, tp;
  };
  Own of(int rank, const Coordinate& at, Board& board, double deadline) {
    const auto communicator = [&](Group& group, int member) {
      return std::make_unique<ThreadCommunicator>(group.threads, member,
                                                  make_watch(board, rank, group.ranks, deadline));
    };
    return {communicator(world_.front(), rank), communicator(dp_[static_cast<std::size_t>(at.tp)], at.dp),
            communicator(tp_[static_cast<std::size_t>(at.dp)], at.tp)};
  }

  /// Over all ranks.
  Watch watch_of(int rank, Board& board, double deadline) const {
    Watch watch = make_watch(board, rank, world_.front().ranks, deadline);
    watch.is_over = [&aborted = aborted_] { return aborted.load(); };
    return watch;
  }

 private:
  struct Group {
    Group(std::vector<int> members, const std::atomic<bool>& aborted)
        : ranks(std::move(members)), threads(static_cast<int>(ranks.size()), aborted) {}
    std::vector<int> ranks;
    ThreadGroup threads;
  };
  const std::atomic<bool>& aborted_;
  std::deque<Group> world_;
  std::deque<Group> dp_;  // by TP rank
  std::deque<Group> tp_;  // by DP rank
};

/// What a rank works with; all ranks' parts live until every rank has ended.
struct Parts {
  Groups::Own communicators;
  Platform platform;
  std::unique_ptr<Rank> rank;
};

}  // namespace

void run_on_threads(const Mesh& mesh, double deadline_seconds, const ChosenBackend& backend, const RankBody& body) {
  const auto ranks = static_cast<std::size_t>(mesh.ranks());
  std::atomic<bool> aborted = false;
  std::vector<Board::Place> places(ranks);
  std::vector<Board::Place*> addresses;
  for (Board::Place& place : places) addresses.push_back(&place);
  Board board(addresses);
  Groups groups(mesh, aborted);
  std::mutex mutex;
  std::string failure, consequence;
  std::vector<Parts> parts(ranks);
  std::vector<std::thread> threads;
  for (int index = 0; index < mesh.ranks(); ++index) {
    threads.emplace_back([&, index] {
      try {
        board.hear(index);
        Parts& own = parts[static_cast<std::size_t>(index)];
        const Coordinate at = mesh.coordinate(index);
        own.communicators = groups.of(index, at, board, deadline_seconds);
        own.platform = backend.backend->make({mesh, index, index, mesh.ranks(), false, *own.communicators.world,
                                              groups.watch_of(index, board, deadline_seconds)},
                                             backend.options);
        own.rank = std::make_unique<Rank>(index, at, own.platform, *own.communicators.world, *own.communicators.dp,
                                          *own.communicators.tp, board);
        body(*own.rank);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        std::string& first = dynamic_cast<const GaveUpAfterOthers*>(&error) == nullptr ? failure : consequence;
        if (first.empty()) first = fmt::format("rank {}: {}", index, error.what());
        aborted = true;
      }
      // Whatever others still read or send has to be done before anything goes.
      if (Parts& own = parts[static_cast<std::size_t>(index)]; own.rank) own.rank->settle();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!failure.empty() || !consequence.empty()) throw Error(failure.empty() ? consequence : failure);
}

}  // namespace canzona::optimized
