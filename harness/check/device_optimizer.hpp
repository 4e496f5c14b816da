// An optimizer of the engine in place of a reference one: for matrices that would take a CPU hours.
#pragma once

#include "optimized/device/device.hpp"
#include "reference/core/shape.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::harness {

/// The same optimizer, made for float only, whose steps are the engine's on `device`: of one whole matrix at a time, by
/// plain products, in fp64 or fp32. For those that have fp64 there; the device must outlive what is made.
reference::OptimizerDescription on_device(reference::OptimizerDescription description, optimized::Device& device,
                                          DType arithmetic);

/// Bytes of the device's memory that a block's steps take there in fp64. Throws InputError where its sides are beyond
/// the device's factorizations.
std::int64_t bytes_on_device(const reference::OptimizerDescription& description, const Options& options, Shape block,
                             optimized::Device& device);

}  // namespace canzona::harness
