// All ranks of a mesh as threads of this process.
#pragma once

#include <functional>

#include "optimized/engine/engine.hpp"

namespace canzona::optimized {

/// Runs body(engine) on a thread for each rank. A rank that throws, or waits for another beyond the deadline, ends all;
/// then an Error says why, with the rank that failed first and where others stand.
void run_on_threads(const Workload& workload, const reference::Objective<float>& objective,
                    const EngineSettings& settings, double deadline_seconds,
                    const std::function<void(Engine&, int rank)>& body);

}  // namespace canzona::optimized
