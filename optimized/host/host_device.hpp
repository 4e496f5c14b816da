// The host as a device: streams on worker threads, OpenBLAS for products and LAPACK, loops for elementwise work.
#pragma once

#include "optimized/device/device.hpp"

namespace canzona::optimized {

/// A device of one rank. OpenBLAS runs each call on the thread that makes it.
std::unique_ptr<Device> make_host_device();

}  // namespace canzona::optimized
