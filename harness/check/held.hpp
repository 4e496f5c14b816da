// What ranks hold of a parameter when a run has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optimized/engine/engine.hpp"
#include "optimized/engine/rank.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// One rank's shard of a parameter.
struct Held {
  /// Of the elements that the rank owns, in order. Replicas that are bitwise equal are one.
  std::shared_ptr<const std::vector<float>> masters = std::make_shared<const std::vector<float>>();
  std::uint64_t weights = 0;  ///< digest of all of the shard's weights
};

/// Differs where any bit differs, or only by the chance of 64-bit digests.
std::uint64_t digest_of(const std::vector<float>& values);

/// The elements of a parameter's shard that a DP rank owns, counted from the shard's first.
std::vector<Range> owned_of_shard(const Workload& workload, int parameter, int dp_rank);

/// All ranks call; the first gets what all hold, by rank, the others nothing.
std::vector<Held> gather_held(optimized::Rank& rank, const Workload& workload, optimized::Engine& engine,
                              int parameter);

}  // namespace canzona::harness
