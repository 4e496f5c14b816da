#include "optimized/host/host_communicator.hpp"

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
  std::int64_t count = 0;
  for (std::size_t member = 0; member < transfer.send.size(); ++member) {
    if (static_cast<int>(member) == own) continue;
    for (const Transfer::Out& piece : transfer.send[member]) count += piece.count;
  }
  return count * static_cast<std::int64_t>(sizeof(float));
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

/// An exchange of everybody's contributions to every share, then sums in rank order.
class ReduceScatter final : public Collective {
 public:
  ReduceScatter(HostCommunicator& communicator, Device& device, DevicePointer<float> data, const Shares& shares)
      : communicator_(communicator), data_(data), own_(shares[communicator.rank()]) {
    const auto size = static_cast<std::size_t>(communicator.size());
    const std::int64_t own = count_of(own_);
    staging_ = device.allocate_elements<float>(own * communicator.size());
    transfer_.send.resize(size);
    transfer_.receive.resize(size);
    for (std::size_t member = 0; member < size; ++member) {
      for (const Range& range : shares[member]) transfer_.send[member].push_back({data + range.begin, range.size()});
      DevicePointer<float> arrived = staging_.as<float>() + static_cast<std::int64_t>(member) * own;
      arrived_.push_back(arrived);
      for (const Range& range : own_) {
        transfer_.receive[member].push_back({arrived, range.size()});
        arrived = arrived + range.size();
      }
    }
  }

  void start(Stream& stream) override {
    stream.run([this] {
      communicator_.exchange(transfer_);
      const auto members = static_cast<float>(communicator_.size());
      std::int64_t position = 0;
      for (const Range& range : own_) {
        for (std::int64_t i = range.begin; i < range.end; ++i, ++position) {
          float sum = 0;
          for (const DevicePointer<float> arrived : arrived_) sum += arrived.raw()[position];
          data_.raw()[i] = sum / members;
        }
      }
    });
  }
  std::int64_t bytes_sent() const override { return bytes_to_others(transfer_, communicator_.rank()); }

 private:
  HostCommunicator& communicator_;
  DevicePointer<float> data_;
  std::vector<Range> own_;
  Buffer staging_;
  std::vector<DevicePointer<float>> arrived_;  // by member
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

class SumExactly final : public Collective {
 public:
  SumExactly(HostCommunicator& communicator, ExactSum* sum)
      : communicator_(communicator), sum_(sum), sums_(static_cast<std::size_t>(communicator.size())) {}

  void start(Stream& stream) override {
    stream.run([this] {
      communicator_.exchange(*sum_, sums_);
      *sum_ = {};
      for (const ExactSum& sum : sums_) sum_->add(sum);
    });
  }
  std::int64_t bytes_sent() const override { return (communicator_.size() - 1) * ExactSum::bytes(); }

 private:
  HostCommunicator& communicator_;
  ExactSum* sum_;
  std::vector<ExactSum> sums_;
};

}  // namespace

std::unique_ptr<Collective> HostCommunicator::reduce_scatter(Device& device, DevicePointer<float> data,
                                                             const Shares& shares) {
  return std::make_unique<ReduceScatter>(*this, device, data, shares);
}

std::unique_ptr<Collective> HostCommunicator::all_gather(DevicePointer<float> data, const Shares& shares) {
  Transfer transfer;
  transfer.send.resize(shares.size());
  transfer.receive.resize(shares.size());
  for (std::size_t member = 0; member < shares.size(); ++member) {
    if (static_cast<int>(member) == rank()) continue;
    for (const Range& range : shares[rank()]) transfer.send[member].push_back({data + range.begin, range.size()});
    for (const Range& range : shares[member]) transfer.receive[member].push_back({data + range.begin, range.size()});
  }
  return all_to_all(std::move(transfer));
}

std::unique_ptr<Collective> HostCommunicator::all_reduce(Device& device, DevicePointer<float> data, Range elements) {
  Shares shares;
  for (const Range& range : even_ranges(elements, size())) shares.push_back({range});
  return std::make_unique<Both>(reduce_scatter(device, data, shares), all_gather(data, shares));
}

std::unique_ptr<Collective> HostCommunicator::all_to_all(Transfer transfer) {
  return std::make_unique<Exchange>(*this, std::move(transfer));
}

std::unique_ptr<Collective> HostCommunicator::all_reduce(ExactSum* sum) {
  return std::make_unique<SumExactly>(*this, sum);
}

}  // namespace canzona::optimized
