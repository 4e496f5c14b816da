// canzona calibrate: what this machine's ranks achieve, measured with the engine's own calls while all of them work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/run/machines.hpp"
#include "harness/simulate/cluster.hpp"
#include "optimized/engine/layers.hpp"
#include "optimized/engine/rank.hpp"

namespace canzona::harness {

struct CalibrationRequest {
  Point point;  ///< whose products, factorizations and groups are measured; its strategy does not matter
  optimized::Tokens tokens;
  DType type = DType::fp32;  ///< of weights, activations and the optimizer's products in two bytes
  std::int64_t rounds = 7;   ///< of which the midmean counts
};

class Probes;

/// Measures every figure once a round, so that what disturbs the machine for a while disturbs all alike; what else is
/// measured between rounds, it disturbs so too. All ranks construct one and call alike.
class Calibration {
 public:
  Calibration(optimized::Rank& rank, const CalibrationRequest& request, const Workload& workload);
  ~Calibration();

  /// `advance` is called on rank 0 after each figure.
  void measure_round(const std::function<void()>& advance = [] {});
  /// Waits for what is under way.
  void finish();
  bool has_measured() const { return !samples_.front().empty(); }
  /// From the midmeans over rounds, one at least, and ranks. It has no names yet; collectives are those of groups of
  /// more than one rank.
  Cluster cluster();
  /// What each rank achieved in each round, [round][rank], as clusters that differ in it; collectives are the mean of
  /// all ranks'.
  std::vector<std::vector<Cluster>> rounds();

 private:
  std::vector<std::vector<std::vector<double>>> samples_of_all();
  Cluster cluster_of(const std::vector<double>& seconds) const;

  optimized::Rank& rank_;
  DType type_;
  Machines machines_;
  std::unique_ptr<Probes> probes_;
  std::vector<std::vector<double>> samples_;  // by figure
};

/// How often `advance` will be called.
std::size_t count_figures(const CalibrationRequest& request, const Workload& workload);

/// The cluster as the text of a TOML file, `source` beside each figure.
std::string cluster_file(const Cluster& cluster, const std::string& source);

}  // namespace canzona::harness
