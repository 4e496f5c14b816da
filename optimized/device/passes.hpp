// Passes over memory that calibration times. Compiled with the optimizers, so that they run wherever those do.
#pragma once

#include <cstdint>

#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// x ← x/2 + g; y ← x: as much as an optimizer's pass over a matrix, 16 bytes an element.
void halve_and_add(Stream& stream, std::int64_t count, DevicePointer<const float> g, DevicePointer<float> x,
                   DevicePointer<float> y);

/// launch_exact_squares
void add_exact_squares(Stream& stream, DevicePointer<const float> values, std::int64_t count,
                       DevicePointer<std::int64_t> integers);

}  // namespace canzona::optimized
