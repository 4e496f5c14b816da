// The largest of what a functor returns: beside launch and launch_sums, for whoever needs an error or a row's size.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "optimized/device/memory.hpp"
#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// *largest = max of functor(i), a double, over i in [0, count); NaN where one of them is.
template <class Functor>
void launch_maximum(Stream& stream, std::int64_t count, DevicePointer<double> largest, const Functor& functor) {
  stream.run([count, largest, functor] {
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = functor(i);
      most = std::isnan(most) || value <= most ? most : value;
    }
    *largest.raw() = most;
  });
}

}  // namespace canzona::optimized
