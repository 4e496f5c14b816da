// The host as a device: streams on worker threads, OpenBLAS for products and LAPACK, loops for elementwise work.
#pragma once

#include "optimized/device/device.hpp"

namespace canzona::optimized {

/// A device of one rank: of one thread beside each stream's, or of several for products, stacks of them and long
/// elementwise passes. More than one is for one rank per process, as OpenBLAS has one number of threads. Its streams
/// must not outlive it.
std::unique_ptr<Device> make_host_device(int threads = 1);

}  // namespace canzona::optimized
