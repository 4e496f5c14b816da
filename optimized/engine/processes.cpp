#include "optimized/engine/processes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "optimized/host/mpi_communicator.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

/// Board places of the ranks on this machine, in memory that they share.
class SharedPlaces {
 public:
  explicit SharedPlaces(int ranks) : by_rank_(static_cast<std::size_t>(ranks), nullptr) {
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine_);
    void* own = nullptr;
    MPI_Win_allocate_shared(sizeof(Board::Place), 1, MPI_INFO_NULL, machine_, &own, &window_);
    new (own) Board::Place{};
    MPI_Group machine = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    MPI_Comm_group(machine_, &machine);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_size(machine_, &members_);
    MPI_Comm_rank(machine_, &member_);
    for (int member = 0; member < members_; ++member) {
      int rank = 0;
      MPI_Group_translate_ranks(machine, 1, &member, world, &rank);
      MPI_Aint bytes = 0;
      int unit = 0;
      void* address = nullptr;
      MPI_Win_shared_query(window_, member, &bytes, &unit, &address);
      by_rank_[static_cast<std::size_t>(rank)] = static_cast<Board::Place*>(address);
    }
    MPI_Group_free(&machine);
    MPI_Group_free(&world);
    MPI_Barrier(machine_);  // nobody reads a place before it is made
  }
  SharedPlaces(const SharedPlaces&) = delete;
  SharedPlaces& operator=(const SharedPlaces&) = delete;
  ~SharedPlaces() {
    MPI_Win_free(&window_);
    MPI_Comm_free(&machine_);
  }

  const std::vector<Board::Place*>& by_rank() const { return by_rank_; }
  int rank_on_machine() const { return member_; }
  int ranks_on_machine() const { return members_; }

 private:
  MPI_Comm machine_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int members_ = 0;
  int member_ = 0;
  std::vector<Board::Place*> by_rank_;  // null on other machines
};

/// While one lives, all processes have to come through what MPI does for all of them at once and without a deadline; if
/// not, this process says so and ends, and the job with it.
class Start {
 public:
  Start(double deadline_seconds, int exit_code)
      : watcher_([this, seconds = std::max(deadline_seconds, kLeastSeconds), exit_code] {
          std::unique_lock lock(mutex_);
          if (done_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_done_; })) return;
          fmt::print(stderr, "canzona: waited {} s for another process to start\n", seconds);
          std::fflush(stderr);
          std::_Exit(exit_code);
        }) {}
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  ~Start() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    done_.notify_all();
    watcher_.join();
  }

 private:
  static constexpr double kLeastSeconds = 30;  // a start may be slow without harm
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::thread watcher_;  // last: it uses what stands above
};

MPI_Comm group_of(int color, int rank) {
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &group);
  return group;
}

}  // namespace

bool is_one_of_several_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* size = std::getenv(name); size != nullptr && std::atoi(size) > 1) return true;
  }
  return false;
}

Processes::Processes(double deadline_seconds, int exit_code)
    : deadline_seconds_(deadline_seconds), exit_code_(exit_code) {
  const Start start(deadline_seconds, exit_code);
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) throw Error("this MPI cannot be called from several threads at once");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  const auto describe = [](const std::vector<int>& missing) {
    return fmt::format("rank {} before the start", fmt::join(missing, ", "));
  };
  start_ = std::make_unique<MpiCommunicator>(group_of(0, rank_),
                                             Watch{.deadline_seconds = deadline_seconds, .describe = describe});
}

Processes::~Processes() {
  start_.reset();
  MPI_Finalize();
}

void Processes::run(const Mesh& mesh, const ChosenBackend& backend, const RankBody& body) {
  std::optional<Start> start(std::in_place, deadline_seconds_, exit_code_);
  const Coordinate at = mesh.coordinate(rank_);
  SharedPlaces places(size_);
  Board board(places.by_rank());
  board.hear(rank_);
  std::vector<int> all(static_cast<std::size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  const auto watch = [&](const std::vector<int>& group) { return make_watch(board, rank_, group, deadline_seconds_); };
  MpiCommunicator world(group_of(0, rank_), watch(all));
  MpiCommunicator dp(group_of(at.tp, rank_), watch(mesh.dp_group(rank_)));
  MpiCommunicator tp(group_of(at.dp, rank_), watch(mesh.tp_group(rank_)));
  start.reset();
  Platform platform;
  std::optional<Rank> rank;
  try {
    platform = backend.backend->make(
        {mesh, rank_, places.rank_on_machine(), places.ranks_on_machine(), true, world, watch(all)}, backend.options);
    rank.emplace(rank_, at, platform, world, dp, tp, board);
    body(*rank);
    rank->settle();
  } catch (const std::exception& error) {
    // Nothing is taken down: that would wait for ranks that do not come.
    fmt::print(stderr, "canzona: rank {}: {}\n", rank_, error.what());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, exit_code_);
    std::_Exit(exit_code_);
  }
}

}  // namespace canzona::optimized
