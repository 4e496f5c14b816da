#include "optimized/engine/threads.hpp"

#include <fmt/format.h>

#include <mutex>
#include <thread>

#include "optimized/host/host_device.hpp"
#include "optimized/host/thread_communicator.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

/// The groups of a mesh: one for each set of ranks that communicate.
class Groups {
 public:
  Groups(const Mesh& mesh, double deadline, const std::atomic<bool>& aborted, const Board& board) {
    for (int index = 0; index < mesh.tp; ++index)
      dp_.push_back(make(mesh.dp_group(mesh.rank({0, index, 0})), deadline, aborted, board));
    for (int index = 0; index < mesh.dp; ++index)
      tp_.push_back(make(mesh.tp_group(mesh.rank({index, 0, 0})), deadline, aborted, board));
  }
  ThreadGroup& dp(const Coordinate& at) { return *dp_[static_cast<std::size_t>(at.tp)]; }
  ThreadGroup& tp(const Coordinate& at) { return *tp_[static_cast<std::size_t>(at.dp)]; }

 private:
  static std::unique_ptr<ThreadGroup> make(const std::vector<int>& ranks, double deadline,
                                           const std::atomic<bool>& aborted, const Board& board) {
    return std::make_unique<ThreadGroup>(static_cast<int>(ranks.size()), deadline, aborted,
                                         [ranks, &board](const std::vector<int>& missing) {
                                           std::string text;
                                           for (const int member : missing)
                                             text += (text.empty() ? "" : "; ") + board.describe(ranks[member]);
                                           return text;
                                         });
  }

  std::vector<std::unique_ptr<ThreadGroup>> dp_;  // by TP rank
  std::vector<std::unique_ptr<ThreadGroup>> tp_;  // by DP rank
};

/// What a rank works with. It lives until every rank has ended: others read what it sends from where it lies.
struct RankParts {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> dp;
  std::unique_ptr<Communicator> tp;
  std::unique_ptr<Engine> engine;
};

}  // namespace

void run_on_threads(const Workload& workload, const reference::Objective<float>& objective,
                    const EngineSettings& settings, double deadline_seconds,
                    const std::function<void(Engine&, int rank)>& body) {
  const int ranks = workload.mesh.ranks();
  std::atomic<bool> aborted = false;
  Board board(ranks);
  Groups groups(workload.mesh, deadline_seconds, aborted, board);
  std::mutex mutex;
  std::string failure;
  std::vector<RankParts> parts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Coordinate at = workload.mesh.coordinate(rank);
        RankParts& own = parts[static_cast<std::size_t>(rank)];
        own.device = make_host_device();
        own.dp = std::make_unique<ThreadCommunicator>(groups.dp(at), at.dp);
        own.tp = std::make_unique<ThreadCommunicator>(groups.tp(at), at.tp);
        own.engine =
            std::make_unique<Engine>(workload, rank, *own.device, *own.dp, *own.tp, objective, settings, board);
        body(*own.engine, rank);
        own.engine->finish();
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (failure.empty()) failure = fmt::format("rank {}: {}", rank, error.what());
        aborted = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!failure.empty()) throw Error(failure);
}

}  // namespace canzona::optimized
