// What changes from one step of an optimizer to the next, as kernels read it: a captured step freezes nothing of it.
#pragma once

#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// Of an optimizer's means; what they stand for is its own affair.
struct Corrections {
  float first = 1;
  float second = 1;
};

/// In the device's memory, one for all matrices of an optimizer.
struct StepValues {
  float factor = 1;  ///< of gradients, as clipping asks
  Corrections corrections;
  float rate = 0;     ///< lr
  float product = 0;  ///< lr·wd
  float kept = 1;     ///< 1 − lr·wd
};

/// Asynchronous; for steps that come after it on the stream.
void put(Stream& stream, const StepValues& values, DevicePointer<StepValues> to);

}  // namespace canzona::optimized
