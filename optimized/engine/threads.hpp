// All ranks of a mesh as threads of this process.
#pragma once

#include "optimized/engine/rank.hpp"

namespace canzona::optimized {

/// Runs body(rank) on a thread for each rank of the mesh. A rank that throws, or waits for another beyond the deadline,
/// ends all; then an Error says why, with the rank that failed first and where others stand.
void run_on_threads(const Mesh& mesh, double deadline_seconds, const ChosenBackend& backend, const RankBody& body);

}  // namespace canzona::optimized
