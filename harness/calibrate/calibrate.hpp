// canzona calibrate: what this machine's ranks achieve, measured with the engine's own calls while all of them work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/simulate/cluster.hpp"
#include "optimized/engine/layers.hpp"
#include "optimized/engine/rank.hpp"

namespace canzona::harness {

struct CalibrationRequest {
  Point point;  ///< whose products, factorizations and groups are measured; its strategy does not matter
  optimized::Tokens tokens;
  std::int64_t rounds = 7;  ///< every figure is measured once a round; the median counts
};

/// Runs on this rank what all ranks run. The cluster has no names yet; collectives are those of groups of more than one
/// rank. `advance` is called on rank 0 after each
/// figure of a round.
Cluster calibrate_rank(optimized::Rank& rank, const CalibrationRequest& request, const Workload& workload,
                       const std::function<void()>& advance);

/// How often `advance` will be called.
std::size_t count_figures(const CalibrationRequest& request, const Workload& workload);

/// The cluster as the text of a TOML file, `source` beside each figure.
std::string cluster_file(const Cluster& cluster, const std::string& source);

}  // namespace canzona::harness
