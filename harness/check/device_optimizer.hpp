// An optimizer of the engine in place of a reference one: for matrices that would take a CPU hours.
#pragma once

#include "optimized/device/device.hpp"
#include "reference/core/shape.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::harness {

/// The same optimizer, made for float only, whose steps are the engine's on `device`: of one whole matrix at a time, by
/// plain products in fp64. For those that orthogonalize; the device must outlive what is made.
reference::OptimizerDescription on_device_in_fp64(reference::OptimizerDescription description,
                                                  optimized::Device& device);

/// Bytes of the device's memory that a block's steps take there.
std::int64_t bytes_on_device(const reference::OptimizerDescription& description, const Options& options, Shape block);

}  // namespace canzona::harness
