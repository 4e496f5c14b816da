// Collectives on the host: every one is an exchange of pieces, and reductions add what arrived in rank order, so that
// the bits are those of the reference.
#pragma once

#include <string>
#include <vector>

#include "optimized/device/communicator.hpp"

namespace canzona::optimized {

/// Leaves to its backends how pieces move.
class HostCommunicator : public Communicator {
 public:
  std::unique_ptr<Collective> reduce_scatter(Device& device, DevicePointer<float> data, const Shares& shares,
                                             DType wire) final;
  std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<float> data, Range elements, DType wire) final;
  std::unique_ptr<Collective> all_to_all(Transfer transfer) final;
  std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<std::int64_t> integers,
                                         std::int64_t count) final;

  /// Moves the pieces, those to this rank itself included; returns when this rank's have come and its own may be
  /// overwritten. One call at a time; a communicator that a stream uses belongs to it. Throws Error when a member does
  /// not come within the deadline, or sends another number of bytes.
  virtual void exchange(const Transfer& transfer) = 0;

  /// Every member's text, by member: on all members, or on the first alone (nothing on others). On the caller's thread.
  using Communicator::all_gather;
  std::vector<std::string> all_gather(const std::string& own) { return gather(own, true); }
  std::vector<std::string> gather(const std::string& own) { return gather(own, false); }

 private:
  std::unique_ptr<Collective> all_gather_bytes(Device& device, DevicePointer<std::byte> data,
                                               const Shares& shares) final;
  std::vector<std::string> gather(const std::string& own, bool to_all);
};

}  // namespace canzona::optimized
