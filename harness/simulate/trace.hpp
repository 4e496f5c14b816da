// A timeline as a Chrome trace, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "harness/simulate/simulator.hpp"

namespace canzona::harness {

/// The last iteration of `timeline`: a process per rank class, a thread per stream, microseconds from the first step's
/// begin.
nlohmann::ordered_json trace_of(const Timeline& timeline, const Plan& plan);

}  // namespace canzona::harness
