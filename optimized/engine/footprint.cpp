#include "optimized/engine/footprint.hpp"

#include <vector>

#include "optimized/engine/counting_device.hpp"

namespace canzona::optimized {
namespace {

class SilentCommunicator final : public HostCommunicator {
 public:
  SilentCommunicator(int size, int rank) : size_(size), rank_(rank) {}
  int size() const override { return size_; }
  int rank() const override { return rank_; }
  void exchange(const Transfer&) override {}

 private:
  int size_;
  int rank_;
};

Ledger footprint_with(const Workload& workload, int rank, HostCommunicator& world, Communicator& dp, Communicator& tp,
                      const EngineSettings& settings) {
  Platform platform;
  platform.device = make_counting_device();
  Board board(std::vector<Board::Place*>{});
  Rank own(rank, workload.mesh.coordinate(rank), platform, world, dp, tp, board);
  reference::Objective<float> objective(1);
  objective.recur(kGradientPeriod);
  return Engine(workload, own, objective, settings).memory();
}

}  // namespace

Ledger footprint(const Workload& workload, int rank, const EngineSettings& settings) {
  const Mesh& mesh = workload.mesh;
  const Coordinate at = mesh.coordinate(rank);
  SilentCommunicator world(mesh.ranks(), rank), dp(mesh.dp, at.dp), tp(mesh.tp, at.tp);
  Ledger own = footprint_with(workload, rank, world, dp, tp, settings);
  own.add(Purpose::communication, -own.of(Purpose::communication));
  return own;
}

Ledger footprint(const Workload& workload, Rank& rank, const EngineSettings& settings) {
  return footprint_with(workload, rank.index, rank.world, rank.dp, rank.tp, settings);
}

}  // namespace canzona::optimized
