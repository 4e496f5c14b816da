// Collectives by NCCL, whose own are even: three ways to do uneven ones.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "optimized/cuda/cuda_device.hpp"
#include "optimized/device/communicator.hpp"
#include "optimized/host/host_communicator.hpp"

namespace canzona::optimized {

/// How reduce-scatters and all-gathers of uneven shares are put together.
enum class UnevenWay {
  per_owner,  ///< a reduce or a broadcast for each piece, grouped
  padded,     ///< NCCL's even collective of shares padded to the largest, copied in and out
  pairwise    ///< grouped sends and receives; sums are made here, in rank order: the reference's bits
};
std::vector<std::string> uneven_ways();
/// Throws InputError with the allowed names.
UnevenWay parse_uneven_way(const std::string& name);

/// One member of a group, on one stream only.
class NcclCommunicator final : public Communicator {
 public:
  /// All members of `group` call; the group carries NCCL's id to them.
  NcclCommunicator(HostCommunicator& group, CudaDevice& device, UnevenWay way);
  ~NcclCommunicator() override;

  /// All members call; those of one color become a group, in the order of their ranks here.
  std::unique_ptr<NcclCommunicator> split(int color);

  int size() const override { return size_; }
  int rank() const override { return rank_; }
  std::unique_ptr<Collective> reduce_scatter(Device& device, DevicePointer<float> data, const Shares& shares,
                                             DType wire) override;
  /// NCCL's own.
  std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<float> data, Range elements,
                                         DType wire) override;
  std::unique_ptr<Collective> all_to_all(Transfer transfer) override;
  std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<std::int64_t> integers,
                                         std::int64_t count) override;

 private:
  NcclCommunicator(ncclComm_t own, CudaDevice& device, UnevenWay way);
  std::unique_ptr<Collective> all_gather_bytes(Device& device, DevicePointer<std::byte> data,
                                               const Shares& shares) override;
  void take_place();
  void ask();
  void abort();

  CudaDevice& device_;
  UnevenWay way_;
  ncclComm_t own_ = nullptr;
  int size_ = 0;
  int rank_ = 0;
  bool is_aborted_ = false;
  Watchdog::Place place_;
};

}  // namespace canzona::optimized
