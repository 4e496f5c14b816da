// Collectives on the host: every one is an exchange of pieces, and reductions add what arrived in rank order, so that
// the bits are those of the reference.
#pragma once

#include "optimized/device/communicator.hpp"

namespace canzona::optimized {

/// Leaves to its backends how pieces move.
class HostCommunicator : public Communicator {
 public:
  std::unique_ptr<Collective> reduce_scatter(Device& device, DevicePointer<float> data, const Shares& shares) final;
  std::unique_ptr<Collective> all_gather(DevicePointer<float> data, const Shares& shares) final;
  std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<float> data, Range elements) final;
  std::unique_ptr<Collective> all_to_all(Transfer transfer) final;
  std::unique_ptr<Collective> all_reduce(ExactSum* sum) final;

  /// Moves the pieces, those to this rank itself included; returns when this rank's have come and its own may be
  /// overwritten. Called on a stream's thread.
  virtual void exchange(const Transfer& transfer) = 0;
  /// sums[member] = that member's `own`.
  virtual void exchange(const ExactSum& own, std::vector<ExactSum>& sums) = 0;
};

}  // namespace canzona::optimized
