// A device that only counts what is taken of it.
#pragma once

#include <memory>

#include "optimized/device/device.hpp"

namespace canzona::optimized {

/// Its addresses lead nowhere, and its streams drop what they are given. Libraries take work memory as on `like`, which
/// must outlive it; none: as on the host.
std::unique_ptr<Device> make_counting_device(Device* like = nullptr);

}  // namespace canzona::optimized
