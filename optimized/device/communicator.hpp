// Collectives of one group of ranks. Each is prepared once, with its buffers, and started every iteration.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optimized/device/device.hpp"
#include "reference/core/exact_sum.hpp"
#include "reference/core/shape.hpp"

namespace canzona::optimized {

/// A collective that knows its addresses. Every rank of the group starts its own, in the same order.
class Collective {
 public:
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  /// Asynchronous on the stream; the collective must outlive what it started.
  virtual void start(Stream& stream) = 0;
  /// What this rank sends in one start.
  virtual std::int64_t bytes_sent() const = 0;
};

/// What a rank sends to and receives from each member of its group; piece i of a send is piece i of the other's
/// receive.
struct Transfer {
  struct Out {
    DevicePointer<const float> data;
    std::int64_t count = 0;
  };
  struct In {
    DevicePointer<float> data;
    std::int64_t count = 0;
  };
  std::vector<std::vector<Out>> send;    // by member
  std::vector<std::vector<In>> receive;  // by member
};

/// By member of the group, the elements of a flat buffer that it owns.
using Shares = std::vector<std::vector<Range>>;

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int size() const = 0;
  virtual int rank() const = 0;

  /// data[i] ← average over the group of data[i], for the elements that this rank owns; contributions are added in rank
  /// order. Others' elements are left as they are.
  virtual std::unique_ptr<Collective> reduce_scatter(Device& device, DevicePointer<float> data,
                                                     const Shares& shares) = 0;
  /// Every rank's own elements come to all.
  virtual std::unique_ptr<Collective> all_gather(DevicePointer<float> data, const Shares& shares) = 0;
  /// reduce_scatter of even shares of `elements`, then all_gather.
  virtual std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<float> data, Range elements) = 0;
  virtual std::unique_ptr<Collective> all_to_all(Transfer transfer) = 0;
  /// *sum, which lives on the host, becomes the sum over the group.
  virtual std::unique_ptr<Collective> all_reduce(ExactSum* sum) = 0;
};

}  // namespace canzona::optimized
