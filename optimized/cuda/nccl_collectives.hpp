// How each collective of a group is put together from NCCL's calls and kernels. For nccl_communicator.cpp.
#pragma once

#include <nccl.h>

#include <memory>

#include "optimized/cuda/cuda_device.hpp"
#include "optimized/device/communicator.hpp"

namespace canzona::optimized {

/// What a collective keeps of its communicator, which must outlive it.
struct NcclGroup {
  ncclComm_t communicator;
  int size;
  int rank;
  CudaDevice& device;
};

/// Waits until calls that have returned before they were through are through.
void settle_nccl(ncclComm_t communicator, Watchdog& watchdog);

std::unique_ptr<Collective> nothing_to_do();

// Averages over the group; each member's share is right on that member alone. See UnevenWay. In bf16, `by_owner` and
// `padded` round as NCCL does on its way, `pairwise` once.
std::unique_ptr<Collective> reduce_by_owner(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                            const Shares& shares, DType wire);
std::unique_ptr<Collective> reduce_padded(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                          const Shares& shares, DType wire);
std::unique_ptr<Collective> reduce_pairwise(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                            const Shares& shares, DType wire);

// Everyone's share to all, as it is.
std::unique_ptr<Collective> gather_by_owner(const NcclGroup& group, Device& device, DevicePointer<std::byte> data,
                                            const Shares& shares);
std::unique_ptr<Collective> gather_padded(const NcclGroup& group, Device& device, DevicePointer<std::byte> data,
                                          const Shares& shares);
std::unique_ptr<Collective> gather_pairwise(const NcclGroup& group, Device& device, DevicePointer<std::byte> data,
                                            const Shares& shares);

/// The average of a range on all.
std::unique_ptr<Collective> reduce_to_all(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                          Range elements, DType wire);

std::unique_ptr<Collective> exchange(const NcclGroup& group, Transfer transfer);

std::unique_ptr<Collective> sum_integers(const NcclGroup& group, DevicePointer<std::int64_t> integers,
                                         std::int64_t count);

}  // namespace canzona::optimized
