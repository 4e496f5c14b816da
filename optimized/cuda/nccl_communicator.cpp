#include "optimized/cuda/nccl_communicator.hpp"

#include <cstring>
#include <string>

#include "optimized/cuda/check.hpp"
#include "optimized/cuda/nccl_collectives.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

/// Calls return before they are through: whoever waits then can be told that another rank does not come.
ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclUniqueId shared_id(HostCommunicator& group) {
  ncclUniqueId id{};
  if (group.rank() == 0) check(ncclGetUniqueId(&id));
  const std::string first = group.all_gather(std::string(id.internal, sizeof(id.internal))).front();
  std::memcpy(id.internal, first.data(), sizeof(id.internal));
  return id;
}

}  // namespace

std::vector<std::string> uneven_ways() { return {"per-owner", "padded", "pairwise"}; }

UnevenWay parse_uneven_way(const std::string& name) {
  if (name == "per-owner") return UnevenWay::per_owner;
  if (name == "padded") return UnevenWay::padded;
  if (name == "pairwise") return UnevenWay::pairwise;
  throw InputError("", "--uneven", "'" + name + "'", "per-owner, padded, pairwise");
}

NcclCommunicator::NcclCommunicator(HostCommunicator& group, CudaDevice& device, UnevenWay way)
    : device_(device), way_(way) {
  const ncclUniqueId id = shared_id(group);
  ncclConfig_t config = configuration();
  check(ncclCommInitRankConfig(&own_, group.size(), id, group.rank(), &config));
  take_place();
}

NcclCommunicator::NcclCommunicator(ncclComm_t own, CudaDevice& device, UnevenWay way)
    : device_(device), way_(way), own_(own) {
  take_place();
}

void NcclCommunicator::take_place() {
  place_ = device_.watchdog().add({[this] { ask(); }, [this] { abort(); }});
  try {
    settle_nccl(own_, device_.watchdog());
    check(ncclCommCount(own_, &size_));
    check(ncclCommUserRank(own_, &rank_));
  } catch (...) {
    device_.watchdog().remove(place_);
    abort();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  device_.watchdog().remove(place_);
  if (!is_aborted_) ncclCommDestroy(own_);
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::split(int color) {
  ncclComm_t part = nullptr;
  ncclConfig_t config = configuration();
  check(ncclCommSplit(own_, color, rank_, &part, &config));
  settle_nccl(own_, device_.watchdog());
  return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(part, device_, way_));
}

void NcclCommunicator::ask() {
  if (is_aborted_) return;
  ncclResult_t status = ncclSuccess;
  check(ncclCommGetAsyncError(own_, &status));
  if (status == ncclSuccess || status == ncclInProgress) return;
  const std::string text = std::string("NCCL: ") + ncclGetErrorString(status) + ": " + ncclGetLastError(own_);
  if (status == ncclRemoteError) throw GaveUpAfterOthers(text);
  throw Error(text);
}

void NcclCommunicator::abort() {
  if (!is_aborted_) ncclCommAbort(own_);
  is_aborted_ = true;
}

std::unique_ptr<Collective> NcclCommunicator::reduce_scatter(Device& device, DevicePointer<float> data,
                                                             const Shares& shares, DType wire) {
  const NcclGroup group{own_, size_, rank_, device_};
  if (size_ == 1 && wire == DType::fp32) return nothing_to_do();
  switch (way_) {
    case UnevenWay::per_owner: return reduce_by_owner(group, device, data, shares, wire);
    case UnevenWay::padded: return reduce_padded(group, device, data, shares, wire);
    case UnevenWay::pairwise: return reduce_pairwise(group, device, data, shares, wire);
  }
  throw Error("no such way");
}

std::unique_ptr<Collective> NcclCommunicator::all_gather_bytes(Device& device, DevicePointer<std::byte> data,
                                                               const Shares& shares) {
  const NcclGroup group{own_, size_, rank_, device_};
  if (size_ == 1) return nothing_to_do();
  switch (way_) {
    case UnevenWay::per_owner: return gather_by_owner(group, device, data, shares);
    case UnevenWay::padded: return gather_padded(group, device, data, shares);
    case UnevenWay::pairwise: return gather_pairwise(group, device, data, shares);
  }
  throw Error("no such way");
}

std::unique_ptr<Collective> NcclCommunicator::all_reduce(Device& device, DevicePointer<float> data, Range elements,
                                                         DType wire) {
  return reduce_to_all({own_, size_, rank_, device_}, device, data, elements, wire);
}

std::unique_ptr<Collective> NcclCommunicator::all_to_all(Transfer transfer) {
  return exchange({own_, size_, rank_, device_}, std::move(transfer));
}

std::unique_ptr<Collective> NcclCommunicator::all_reduce(Device&, DevicePointer<std::int64_t> integers,
                                                         std::int64_t count) {
  return sum_integers({own_, size_, rank_, device_}, integers, count);
}

}  // namespace canzona::optimized
