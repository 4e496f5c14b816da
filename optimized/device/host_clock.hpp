// The clock on which all devices of a machine tell their times.
#pragma once

#include <chrono>

namespace canzona::optimized {

/// Seconds on the host's monotonic clock.
inline double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace canzona::optimized
