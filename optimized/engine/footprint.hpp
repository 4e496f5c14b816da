// How much memory a rank will take: its engine is built where memory is counted and not given.
#pragma once

#include "optimized/device/ledger.hpp"
#include "optimized/engine/engine.hpp"

namespace canzona::optimized {

/// What the engine of `rank` takes on a device, but for what collectives keep, which depends on the backend. Throws
/// InputError where the engine would.
Ledger footprint(const Workload& workload, int rank, const EngineSettings& settings);
/// What it takes on this rank's device with its communicators; factorizations as on the host.
Ledger footprint(const Workload& workload, Rank& rank, const EngineSettings& settings);

}  // namespace canzona::optimized
