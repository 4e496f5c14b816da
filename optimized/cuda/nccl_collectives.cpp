#include "optimized/cuda/nccl_collectives.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/cuda/check.hpp"
#include "optimized/device/launch.hpp"
#include "optimized/device/narrow.hpp"

namespace canzona::optimized {
namespace {

template <class Wire>
constexpr ncclDataType_t kType = std::is_same_v<Wire, float>  ? ncclFloat32
                                 : std::is_same_v<Wire, Bf16> ? ncclBfloat16
                                                              : ncclInt8;

template <class Wire>
struct Pack {
  const float* from;
  Wire* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = static_cast<Wire>(from[i]); }
};

/// An average is rounded as it would travel.
template <class Wire>
struct Unpack {
  const Wire* from;
  float divisor;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    to[i] = static_cast<float>(static_cast<Wire>(static_cast<float>(from[i]) / divisor));
  }
};

/// Contributions of all members, each `stride` elements long, added in rank order.
template <class Wire>
struct AverageInOrder {
  const Wire* arrived;
  std::int64_t stride;
  int members;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    float sum = 0.0f + static_cast<float>(arrived[i]);
    for (int member = 1; member < members; ++member) sum += static_cast<float>(arrived[member * stride + i]);
    to[i] = static_cast<float>(static_cast<Wire>(sum / static_cast<float>(members)));
  }
};

/// A collective whose start is a function, with the memory that it needs.
class Prepared final : public Collective {
 public:
  Prepared(std::int64_t bytes, std::function<void(Stream&)> start) : bytes_(bytes), start_(std::move(start)) {}
  void start(Stream& stream) override { start_(stream); }
  std::int64_t bytes_sent() const override { return bytes_; }

 private:
  std::int64_t bytes_;
  std::function<void(Stream&)> start_;
};

std::int64_t count_of(const std::vector<Range>& ranges) {
  std::int64_t count = 0;
  for (const Range& range : ranges) count += range.size();
  return count;
}

/// Calls of one group, begun and ended together.
template <class Calls>
void together(const NcclGroup& group, const Calls& calls) {
  check(ncclGroupStart());
  calls();
  check(ncclGroupEnd());
  settle_nccl(group.communicator, group.device.watchdog());
}

/// The shares of a flat buffer as they travel, in the buffer's type or another: from where they lie, or packed member
/// by member.
template <class Wire, class Element = float>
class Pieces {
 public:
  /// `pads`: every member's share begins at a multiple of the largest.
  Pieces(Device& device, DevicePointer<Element> data, const Shares& shares, bool pads)
      : device_(device), data_(data), shares_(shares), is_packed_(pads || kConverts) {
    for (const auto& share : shares) largest_ = std::max(largest_, count_of(share));
    std::int64_t place = 0;
    for (const auto& share : shares) {
      places_.push_back(place);
      place += pads ? largest_ : count_of(share);
    }
    if (is_packed_) packed_ = device.allocate_elements<Wire>(place);
  }

  int members() const { return static_cast<int>(shares_.size()); }
  std::int64_t count(int member) const { return count_of(shares_[index(member)]); }
  std::int64_t largest() const { return largest_; }
  const std::vector<Range>& ranges(int member) const { return shares_[index(member)]; }
  DevicePointer<Element> data() const { return data_; }
  std::int64_t bytes(std::int64_t elements) const { return elements * static_cast<std::int64_t>(sizeof(Wire)); }
  std::int64_t all() const {
    std::int64_t sum = 0;
    for (const auto& share : shares_) sum += count_of(share);
    return sum;
  }
  Wire* packed(int member) const { return packed_.template as<Wire>().raw() + places_[index(member)]; }

  /// span(address, count) of what travels of a member's share.
  template <class Body>
  void each_span(int member, const Body& span) const {
    if (is_packed_) {
      if (count(member) > 0) span(packed(member), count(member));
    } else {
      for (const Range& range : ranges(member)) span(reinterpret_cast<Wire*>(data_.raw()) + range.begin, range.size());
    }
  }
  void pack(Stream& stream, int member) const {
    if (!is_packed_) return;
    each_range(member, [&](Element* values, Wire* packed, std::int64_t size) {
      if constexpr (kConverts) {
        launch(stream, size, Pack<Wire>{values, packed});
      } else {
        device_.copy(stream, values, packed, static_cast<std::size_t>(bytes(size)));
      }
    });
  }
  void unpack(Stream& stream, int member) const {
    if (!is_packed_) return;
    each_range(member, [&](Element* values, Wire* packed, std::int64_t size) {
      device_.copy(stream, packed, values, static_cast<std::size_t>(bytes(size)));
    });
  }
  void unpack_average(Stream& stream, int member, float divisor) const {
    if (!is_packed_ && divisor == 1) return;
    each_range(member, [&](Element* values, Wire* packed, std::int64_t size) {
      launch(stream, size, Unpack<Wire>{packed, divisor, values});
    });
  }

 private:
  static constexpr bool kConverts = !std::is_same_v<Wire, Element>;
  static std::size_t index(int member) { return static_cast<std::size_t>(member); }
  template <class Body>
  void each_range(int member, const Body& body) const {
    std::int64_t first = 0;
    for (const Range& range : ranges(member)) {
      Element* values = data_.raw() + range.begin;
      body(values, is_packed_ ? packed(member) + first : reinterpret_cast<Wire*>(values), range.size());
      first += range.size();
    }
  }

  Device& device_;
  DevicePointer<Element> data_;
  Shares shares_;
  bool is_packed_;
  std::int64_t largest_ = 0;
  std::vector<std::int64_t> places_;
  Buffer packed_;
};

template <class Wire>
using Shared = std::shared_ptr<const Pieces<Wire>>;

template <class Wire>
Shared<Wire> pieces_of(Device& device, DevicePointer<float> data, const Shares& shares, bool pads) {
  return std::make_shared<const Pieces<Wire>>(device, data, shares, pads);
}

/// Calls `make` with an element of the type that travels.
template <class Make>
std::unique_ptr<Collective> for_wire(DType wire, const Make& make) {
  return wire == DType::bf16 ? make(Bf16{}) : make(float{});
}

}  // namespace

void settle_nccl(ncclComm_t communicator, Watchdog& watchdog) {
  watchdog.wait([communicator] {
    ncclResult_t status = ncclSuccess;
    check(ncclCommGetAsyncError(communicator, &status));
    return status != ncclInProgress;
  });
}

std::unique_ptr<Collective> nothing_to_do() {
  return std::make_unique<Prepared>(0, [](Stream&) {});
}

std::unique_ptr<Collective> reduce_by_owner(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                            const Shares& shares, DType wire) {
  return for_wire(wire, [&]<class Wire>(Wire) -> std::unique_ptr<Collective> {
    const auto pieces = pieces_of<Wire>(device, data, shares, false);
    const std::int64_t sent = pieces->bytes(pieces->all() - pieces->count(group.rank));  // a chain towards each owner
    return std::make_unique<Prepared>(sent, [group, pieces](Stream& stream) {
      for (int member = 0; member < group.size; ++member) pieces->pack(stream, member);
      together(group, [&] {
        for (int member = 0; member < group.size; ++member) {
          pieces->each_span(member, [&](Wire* address, std::int64_t count) {
            check(ncclReduce(address, address, static_cast<std::size_t>(count), kType<Wire>, ncclSum, member,
                             group.communicator, native(stream)));
          });
        }
      });
      pieces->unpack_average(stream, group.rank, static_cast<float>(group.size));
    });
  });
}

std::unique_ptr<Collective> reduce_padded(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                          const Shares& shares, DType wire) {
  return for_wire(wire, [&]<class Wire>(Wire) -> std::unique_ptr<Collective> {
    const auto pieces = pieces_of<Wire>(device, data, shares, true);
    return std::make_unique<Prepared>(
        pieces->bytes((group.size - 1) * pieces->largest()), [group, pieces](Stream& stream) {
          for (int member = 0; member < group.size; ++member) pieces->pack(stream, member);
          together(group, [&] {
            check(ncclReduceScatter(pieces->packed(0), pieces->packed(group.rank),
                                    static_cast<std::size_t>(pieces->largest()), kType<Wire>, ncclSum,
                                    group.communicator, native(stream)));
          });
          pieces->unpack_average(stream, group.rank, static_cast<float>(group.size));
        });
  });
}

std::unique_ptr<Collective> reduce_pairwise(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                            const Shares& shares, DType wire) {
  return for_wire(wire, [&]<class Wire>(Wire) -> std::unique_ptr<Collective> {
    const auto pieces = pieces_of<Wire>(device, data, shares, false);
    const std::int64_t own = pieces->count(group.rank);
    const auto arrived = std::make_shared<const Buffer>(device.allocate_elements<Wire>(own * group.size));
    return std::make_unique<Prepared>(
        pieces->bytes(pieces->all() - own), [group, pieces, arrived, own](Stream& stream) {
          for (int member = 0; member < group.size; ++member) pieces->pack(stream, member);
          Wire* contributions = arrived->template as<Wire>().raw();
          together(group, [&] {
            for (int member = 0; member < group.size; ++member) {
              pieces->each_span(member, [&](Wire* address, std::int64_t count) {
                check(ncclSend(address, static_cast<std::size_t>(count), kType<Wire>, member, group.communicator,
                               native(stream)));
              });
              Wire* place = contributions + member * own;
              pieces->each_span(group.rank, [&](Wire*, std::int64_t count) {
                check(ncclRecv(place, static_cast<std::size_t>(count), kType<Wire>, member, group.communicator,
                               native(stream)));
                place += count;
              });
            }
          });
          std::int64_t first = 0;
          for (const Range& range : pieces->ranges(group.rank)) {
            launch(stream, range.size(),
                   AverageInOrder<Wire>{contributions + first, own, group.size, (pieces->data() + range.begin).raw()});
            first += range.size();
          }
        });
  });
}

std::unique_ptr<Collective> gather_by_owner(const NcclGroup& group, Device& device, DevicePointer<std::byte> data,
                                            const Shares& shares) {
  const auto pieces = std::make_shared<const Pieces<std::byte, std::byte>>(device, data, shares, false);
  // A ring passes everything on, but to each owner what is its own.
  const std::int64_t sent = pieces->all() - pieces->count((group.rank + 1) % group.size);
  return std::make_unique<Prepared>(sent, [group, pieces](Stream& stream) {
    together(group, [&] {
      for (int member = 0; member < group.size; ++member) {
        pieces->each_span(member, [&](std::byte* address, std::int64_t count) {
          check(ncclBroadcast(address, address, static_cast<std::size_t>(count), ncclInt8, member, group.communicator,
                              native(stream)));
        });
      }
    });
  });
}

std::unique_ptr<Collective> gather_padded(const NcclGroup& group, Device& device, DevicePointer<std::byte> data,
                                          const Shares& shares) {
  const auto pieces = std::make_shared<const Pieces<std::byte, std::byte>>(device, data, shares, true);
  return std::make_unique<Prepared>((group.size - 1) * pieces->largest(), [group, pieces](Stream& stream) {
    pieces->pack(stream, group.rank);
    together(group, [&] {
      check(ncclAllGather(pieces->packed(group.rank), pieces->packed(0), static_cast<std::size_t>(pieces->largest()),
                          ncclInt8, group.communicator, native(stream)));
    });
    for (int member = 0; member < group.size; ++member) pieces->unpack(stream, member);
  });
}

std::unique_ptr<Collective> gather_pairwise(const NcclGroup& group, Device& device, DevicePointer<std::byte> data,
                                            const Shares& shares) {
  const auto pieces = std::make_shared<const Pieces<std::byte, std::byte>>(device, data, shares, false);
  const std::int64_t sent = (group.size - 1) * pieces->count(group.rank);
  return std::make_unique<Prepared>(sent, [group, pieces](Stream& stream) {
    together(group, [&] {
      for (int member = 0; member < group.size; ++member) {
        if (member == group.rank) continue;
        pieces->each_span(group.rank, [&](std::byte* address, std::int64_t count) {
          check(
              ncclSend(address, static_cast<std::size_t>(count), ncclInt8, member, group.communicator, native(stream)));
        });
        pieces->each_span(member, [&](std::byte* address, std::int64_t count) {
          check(
              ncclRecv(address, static_cast<std::size_t>(count), ncclInt8, member, group.communicator, native(stream)));
        });
      }
    });
  });
}

std::unique_ptr<Collective> reduce_to_all(const NcclGroup& group, Device& device, DevicePointer<float> data,
                                          Range elements, DType wire) {
  return for_wire(wire, [&]<class Wire>(Wire) -> std::unique_ptr<Collective> {
    const auto pieces = pieces_of<Wire>(device, data, {{elements}}, false);
    const std::int64_t sent = 2 * pieces->bytes(elements.size()) * (group.size - 1) / group.size;  // round a ring
    return std::make_unique<Prepared>(sent, [group, pieces](Stream& stream) {
      pieces->pack(stream, 0);
      together(group, [&] {
        pieces->each_span(0, [&](Wire* address, std::int64_t count) {
          check(ncclAllReduce(address, address, static_cast<std::size_t>(count), kType<Wire>, ncclSum,
                              group.communicator, native(stream)));
        });
      });
      pieces->unpack_average(stream, 0, static_cast<float>(group.size));
    });
  });
}

std::unique_ptr<Collective> exchange(const NcclGroup& group, Transfer transfer) {
  std::int64_t sent = 0;
  for (int member = 0; member < group.size; ++member) {
    if (member == group.rank) continue;
    for (const Transfer::Out& piece : transfer.send[static_cast<std::size_t>(member)]) sent += piece.bytes;
  }
  return std::make_unique<Prepared>(sent, [group, transfer = std::move(transfer)](Stream& stream) {
    const auto own = static_cast<std::size_t>(group.rank);
    for (std::size_t piece = 0; piece < transfer.send[own].size(); ++piece) {
      const Transfer::Out& from = transfer.send[own][piece];
      group.device.copy(stream, from.data.raw(), transfer.receive[own][piece].data.raw(),
                        static_cast<std::size_t>(from.bytes));
    }
    together(group, [&] {
      for (int member = 0; member < group.size; ++member) {
        if (member == group.rank) continue;
        for (const Transfer::Out& piece : transfer.send[static_cast<std::size_t>(member)]) {
          check(ncclSend(piece.data.raw(), static_cast<std::size_t>(piece.bytes), ncclInt8, member, group.communicator,
                         native(stream)));
        }
        for (const Transfer::In& piece : transfer.receive[static_cast<std::size_t>(member)]) {
          check(ncclRecv(piece.data.raw(), static_cast<std::size_t>(piece.bytes), ncclInt8, member, group.communicator,
                         native(stream)));
        }
      }
    });
  });
}

std::unique_ptr<Collective> sum_integers(const NcclGroup& group, DevicePointer<std::int64_t> integers,
                                         std::int64_t count) {
  const std::int64_t sent = (group.size - 1) * count * static_cast<std::int64_t>(sizeof(std::int64_t));
  return std::make_unique<Prepared>(sent, [group, integers, count](Stream& stream) {
    together(group, [&] {
      check(ncclAllReduce(integers.raw(), integers.raw(), static_cast<std::size_t>(count), ncclInt64, ncclSum,
                          group.communicator, native(stream)));
    });
  });
}

}  // namespace canzona::optimized
