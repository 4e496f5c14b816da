// Collectives of one group of ranks. Each is prepared once, with its buffers, and started every iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "optimized/device/device.hpp"
#include "reference/core/dtype.hpp"
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
    DevicePointer<const std::byte> data;
    std::int64_t bytes = 0;
  };
  struct In {
    DevicePointer<std::byte> data;
    std::int64_t bytes = 0;
  };

  explicit Transfer(int members)
      : send(static_cast<std::size_t>(members)), receive(static_cast<std::size_t>(members)) {}

  template <class T>
  void add_send(int member, DevicePointer<T> data, std::int64_t count) {
    send[static_cast<std::size_t>(member)].push_back(
        {DevicePointer<const std::byte>(reinterpret_cast<const std::byte*>(data.raw())), bytes_of<T>(count)});
  }
  template <class T>
  void add_receive(int member, DevicePointer<T> data, std::int64_t count) {
    receive[static_cast<std::size_t>(member)].push_back(
        {DevicePointer<std::byte>(reinterpret_cast<std::byte*>(data.raw())), bytes_of<T>(count)});
  }

  std::vector<std::vector<Out>> send;    // by member
  std::vector<std::vector<In>> receive;  // by member

 private:
  template <class T>
  static std::int64_t bytes_of(std::int64_t count) {
    return count * static_cast<std::int64_t>(sizeof(T));
  }
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

  /// data[i] ← average over the group of data[i], for the elements that this rank owns; contributions are rounded to
  /// `wire` (fp32 or bf16), in which they travel, added in rank order in fp32, and their average is rounded to `wire`.
  /// Others' elements are left as they are.
  virtual std::unique_ptr<Collective> reduce_scatter(Device& device, DevicePointer<float> data, const Shares& shares,
                                                     DType wire) = 0;
  /// Every rank's own elements come to all, as they are.
  template <class T>
  std::unique_ptr<Collective> all_gather(Device& device, DevicePointer<T> data, Shares shares) {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    for (auto& share : shares) {
      for (Range& range : share) range = {range.begin * kBytes, range.end * kBytes};
    }
    return all_gather_bytes(device, DevicePointer<std::byte>(reinterpret_cast<std::byte*>(data.raw())), shares);
  }
  /// reduce_scatter of even shares of `elements`, then all_gather.
  virtual std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<float> data, Range elements,
                                                 DType wire) = 0;
  virtual std::unique_ptr<Collective> all_to_all(Transfer transfer) = 0;
  /// integers[i] ← the sum over the group of integers[i].
  virtual std::unique_ptr<Collective> all_reduce(Device& device, DevicePointer<std::int64_t> integers,
                                                 std::int64_t count) = 0;

 private:
  virtual std::unique_ptr<Collective> all_gather_bytes(Device& device, DevicePointer<std::byte> data,
                                                       const Shares& shares) = 0;
};

}  // namespace canzona::optimized
