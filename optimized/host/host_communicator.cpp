#include "optimized/host/host_communicator.hpp"

#include <algorithm>
#include <type_traits>

#include "optimized/device/narrow.hpp"
#include "reference/core/error.hpp"
#include "reference/plan/traffic.hpp"

namespace canzona::optimized {
namespace {

std::int64_t count_of(const std::vector<Range>& ranges) {
  std::int64_t count = 0;
  for (const Range& range : ranges) count += range.size();
  return count;
}

/// What all members but `own` get.
std::int64_t bytes_to_others(const Transfer& transfer, int own) {
  std::int64_t bytes = 0;
  for (std::size_t member = 0; member < transfer.send.size(); ++member) {
    if (static_cast<int>(member) == own) continue;
    for (const Transfer::Out& piece : transfer.send[member]) bytes += piece.bytes;
  }
  return bytes;
}

class Exchange final : public Collective {
 public:
  Exchange(HostCommunicator& communicator, Transfer transfer)
      : communicator_(communicator), transfer_(std::move(transfer)) {}

  void start(Stream& stream) override {
    stream.run([this] { communicator_.exchange(transfer_); });
  }
  std::int64_t bytes_sent() const override { return bytes_to_others(transfer_, communicator_.rank()); }

 private:
  HostCommunicator& communicator_;
  Transfer transfer_;
};

/// An exchange of everybody's contributions to every share, then sums in rank order. `Wire` is how elements travel.
template <class Wire>
class ReduceScatter final : public Collective {
 public:
  ReduceScatter(HostCommunicator& communicator, Device& device, DevicePointer<float> data, const Shares& shares)
      : communicator_(communicator),
        data_(data),
        shares_(shares),
        own_(count_of(shares[static_cast<std::size_t>(communicator.rank())])),
        arrived_(device.allocate_elements<Wire>(own_ * communicator.size())),
        transfer_(communicator.size()) {
    std::int64_t all = 0;
    for (const auto& share : shares) all += count_of(share);
    if constexpr (kPacks) leaving_ = device.allocate_elements<Wire>(all);
    DevicePointer<Wire> packed = leaving_.as<Wire>();
    for (int member = 0; member < communicator.size(); ++member) {
      for (const Range& range : shares[static_cast<std::size_t>(member)]) {
        if constexpr (kPacks) {
          transfer_.add_send(member, packed, range.size());
          packed = packed + range.size();
        } else {
          transfer_.add_send(member, data + range.begin, range.size());
        }
      }
      DevicePointer<Wire> arrived = arrived_.as<Wire>() + member * own_;
      for (const Range& range : own_ranges()) {
        transfer_.add_receive(member, arrived, range.size());
        arrived = arrived + range.size();
      }
    }
  }

  void start(Stream& stream) override {
    stream.run([this] {
      if constexpr (kPacks) pack();
      communicator_.exchange(transfer_);
      average();
    });
  }
  std::int64_t bytes_sent() const override { return bytes_to_others(transfer_, communicator_.rank()); }

 private:
  static constexpr bool kPacks = !std::is_same_v<Wire, float>;
  const std::vector<Range>& own_ranges() const { return shares_[static_cast<std::size_t>(communicator_.rank())]; }

  void pack() {
    Wire* packed = leaving_.as<Wire>().raw();
    for (const auto& share : shares_) {
      for (const Range& range : share) {
        for (std::int64_t i = range.begin; i < range.end; ++i) *packed++ = Bf16(data_.raw()[i]);
      }
    }
  }

  void average() {
    const Wire* arrived = arrived_.as<Wire>().raw();
    const int members = communicator_.size();
    std::int64_t first = 0;
    for (const Range& range : own_ranges()) {
      float* sums = data_.raw() + range.begin;
      const std::int64_t count = range.size();
      // Block by block: the sums stay in the cache while one member after another is added.
      constexpr std::int64_t kBlock = 4096;
      for (std::int64_t begin = 0; begin < count; begin += kBlock) {
        const std::int64_t end = std::min(begin + kBlock, count);
        for (std::int64_t i = begin; i < end; ++i) sums[i] = 0.0f + static_cast<float>(arrived[first + i]);
        for (int member = 1; member < members; ++member) {
          const Wire* own = arrived + member * own_ + first;
          for (std::int64_t i = begin; i < end; ++i) sums[i] += static_cast<float>(own[i]);
        }
        for (std::int64_t i = begin; i < end; ++i) {
          sums[i] /= static_cast<float>(members);
          if constexpr (kPacks) sums[i] = round_to(DType::bf16, sums[i]);
        }
      }
      first += count;
    }
  }
  HostCommunicator& communicator_;
  DevicePointer<float> data_;
  Shares shares_;
  std::int64_t own_;  ///< elements
  Buffer arrived_;    ///< every member's contribution to this rank's share
  Buffer leaving_;    ///< packed; unused where elements travel as they are
  Transfer transfer_;
};

/// Shares go straight to everyone, as they are.
template <class T>
Transfer gathering(HostCommunicator& communicator, DevicePointer<T> data, const Shares& shares) {
  const int own = communicator.rank();
  Transfer transfer(communicator.size());
  for (int member = 0; member < communicator.size(); ++member) {
    if (member == own) continue;
    for (const Range& range : shares[static_cast<std::size_t>(own)])
      transfer.add_send(member, data + range.begin, range.size());
    for (const Range& range : shares[static_cast<std::size_t>(member)])
      transfer.add_receive(member, data + range.begin, range.size());
  }
  return transfer;
}

/// The same, rounded to bf16 on the way.
class PackedGather final : public Collective {
 public:
  PackedGather(HostCommunicator& communicator, Device& device, DevicePointer<float> data, const Shares& shares)
      : communicator_(communicator), data_(data), shares_(shares), transfer_(communicator.size()) {
    std::int64_t all = 0;
    for (const auto& share : shares) all += count_of(share);
    packed_ = device.allocate_elements<Bf16>(all);
    DevicePointer<Bf16> place = packed_.as<Bf16>();
    for (int member = 0; member < communicator.size(); ++member) {
      const std::int64_t count = count_of(shares[static_cast<std::size_t>(member)]);
      for (int other = 0; other < communicator.size(); ++other) {
        if (member == communicator.rank() && other != member) transfer_.add_send(other, place, count);
      }
      if (member != communicator.rank()) transfer_.add_receive(member, place, count);
      place = place + count;
    }
  }

  void start(Stream& stream) override {
    stream.run([this] {
      visit([&](int member, float& element, Bf16& packed) {
        if (member == communicator_.rank()) packed = Bf16(element);
      });
      communicator_.exchange(transfer_);
      visit([&](int, float& element, Bf16& packed) { element = static_cast<float>(packed); });
    });
  }
  std::int64_t bytes_sent() const override { return bytes_to_others(transfer_, communicator_.rank()); }

 private:
  template <class Body>
  void visit(const Body& body) {
    Bf16* packed = packed_.as<Bf16>().raw();
    for (std::size_t member = 0; member < shares_.size(); ++member) {
      for (const Range& range : shares_[member]) {
        for (std::int64_t i = range.begin; i < range.end; ++i)
          body(static_cast<int>(member), data_.raw()[i], *packed++);
      }
    }
  }

  HostCommunicator& communicator_;
  DevicePointer<float> data_;
  Shares shares_;
  Buffer packed_;  ///< by member, as shares_
  Transfer transfer_;
};

class Both final : public Collective {
 public:
  Both(std::unique_ptr<Collective> first, std::unique_ptr<Collective> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  void start(Stream& stream) override {
    first_->start(stream);
    second_->start(stream);
  }
  std::int64_t bytes_sent() const override { return first_->bytes_sent() + second_->bytes_sent(); }

 private:
  std::unique_ptr<Collective> first_;
  std::unique_ptr<Collective> second_;
};

class SumIntegers final : public Collective {
 public:
  SumIntegers(HostCommunicator& communicator, Device& device, DevicePointer<std::int64_t> integers, std::int64_t count)
      : communicator_(communicator),
        integers_(integers),
        count_(count),
        arrived_(device.allocate_elements<std::int64_t>(count * communicator.size())),
        transfer_(communicator.size()) {
    for (int member = 0; member < communicator.size(); ++member) {
      transfer_.add_send(member, integers, count);
      transfer_.add_receive(member, arrived_.as<std::int64_t>() + member * count, count);
    }
  }

  void start(Stream& stream) override {
    stream.run([this] {
      communicator_.exchange(transfer_);
      const std::int64_t* arrived = arrived_.as<const std::int64_t>().raw();
      for (std::int64_t i = 0; i < count_; ++i) {
        std::int64_t sum = 0;
        for (int member = 0; member < communicator_.size(); ++member) sum += arrived[member * count_ + i];
        integers_.raw()[i] = sum;
      }
    });
  }
  std::int64_t bytes_sent() const override { return bytes_to_others(transfer_, communicator_.rank()); }

 private:
  HostCommunicator& communicator_;
  DevicePointer<std::int64_t> integers_;
  std::int64_t count_;
  Buffer arrived_;
  Transfer transfer_;
};

}  // namespace

std::unique_ptr<Collective> HostCommunicator::reduce_scatter(Device& device, DevicePointer<float> data,
                                                             const Shares& shares, DType wire) {
  if (wire == DType::bf16) return std::make_unique<ReduceScatter<Bf16>>(*this, device, data, shares);
  return std::make_unique<ReduceScatter<float>>(*this, device, data, shares);
}

std::unique_ptr<Collective> HostCommunicator::all_gather_bytes(Device&, DevicePointer<std::byte> data,
                                                               const Shares& shares) {
  return all_to_all(gathering(*this, data, shares));
}

std::unique_ptr<Collective> HostCommunicator::all_reduce(Device& device, DevicePointer<float> data, Range elements,
                                                         DType wire) {
  Shares shares;
  for (const Range& range : even_ranges(elements, size())) shares.push_back({range});
  auto gather = wire == DType::bf16 ? std::make_unique<PackedGather>(*this, device, data, shares)
                                    : all_to_all(gathering(*this, data, shares));
  return std::make_unique<Both>(reduce_scatter(device, data, shares, wire), std::move(gather));
}

std::unique_ptr<Collective> HostCommunicator::all_to_all(Transfer transfer) {
  return std::make_unique<Exchange>(*this, std::move(transfer));
}

std::unique_ptr<Collective> HostCommunicator::all_reduce(Device& device, DevicePointer<std::int64_t> integers,
                                                         std::int64_t count) {
  return std::make_unique<SumIntegers>(*this, device, integers, count);
}

std::vector<std::string> HostCommunicator::gather(const std::string& own, bool to_all) {
  const int receivers = to_all ? size() : 1;
  const bool receives = rank() < receivers;
  auto length = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(receives ? size() : 0));
  Transfer of_lengths(size());
  for (int member = 0; member < receivers; ++member)
    of_lengths.add_send(member, DevicePointer<std::int64_t>(&length), 1);
  for (std::size_t member = 0; member < lengths.size(); ++member)
    of_lengths.add_receive(static_cast<int>(member), DevicePointer<std::int64_t>(&lengths[member]), 1);
  exchange(of_lengths);
  std::vector<std::string> texts;
  for (const std::int64_t each : lengths) texts.emplace_back(static_cast<std::size_t>(each), '\0');
  Transfer of_texts(size());
  for (int member = 0; member < receivers; ++member)
    of_texts.add_send(member, DevicePointer<const char>(own.data()), length);
  for (std::size_t member = 0; member < texts.size(); ++member)
    of_texts.add_receive(static_cast<int>(member), DevicePointer<char>(texts[member].data()), lengths[member]);
  exchange(of_texts);
  return texts;
}

}  // namespace canzona::optimized
