// NCCL's functions of communicators: creation, split, errors and ends.
#include "tests/emulated_gpu/communicator.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/internal.hpp"

namespace canzona::emulated_gpu {

namespace {

struct Communicators {
  std::mutex mutex;
  std::int64_t identifiers = 0;
  std::map<std::int64_t, std::shared_ptr<Membership>> by_identifier;
  std::vector<std::unique_ptr<ncclComm>> all;
};

Communicators& communicators() {
  static auto* all = new Communicators;  // streams may use it until the process ends
  return *all;
}

thread_local std::string text_of_thread;

ncclComm* add(std::shared_ptr<Membership> members, int rank) {
  auto made = std::make_unique<ncclComm>();
  made->members = std::move(members);
  made->rank = rank;
  made->device = current_device();
  const std::lock_guard lock(communicators().mutex);
  return communicators().all.emplace_back(std::move(made)).get();
}

/// Null if the identifier was never given out, or is used with another number of ranks.
std::shared_ptr<Membership> members_of(const ncclUniqueId& identifier, int ranks) {
  std::int64_t number = 0;
  std::memcpy(&number, identifier.internal, sizeof number);
  const std::lock_guard lock(communicators().mutex);
  if (number < 1 || number > communicators().identifiers) return nullptr;
  std::shared_ptr<Membership>& members = communicators().by_identifier[number];
  if (!members) members = std::make_shared<Membership>(ranks);
  return members->ranks() == ranks ? members : nullptr;
}

ncclResult_t make(ncclComm_t* communicator, int ranks, const ncclUniqueId& identifier, int rank, bool blocks) {
  if (communicator == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return refuse(ncclInvalidArgument,
                  "ncclCommInitRank: rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " is none");
  }
  *communicator = nullptr;
  if (is_grouping()) return refuse(ncclInvalidUsage, "ncclCommInitRank in a group is not emulated");
  std::shared_ptr<Membership> members = members_of(identifier, ranks);
  if (!members) {
    return refuse(ncclInvalidArgument, "ncclCommInitRank: an unknown identifier, or one of another number of ranks");
  }
  const ncclResult_t result = members->join(rank, current_device(), blocks);
  if (result != ncclSuccess && result != ncclInProgress) {
    const std::string& text = members->exchange().text();
    return refuse(result, text.empty() ? "ncclCommInitRank: rank " + std::to_string(rank) + " comes twice" : text);
  }
  *communicator = add(std::move(members), rank);
  return result;
}

ncclResult_t refuse_closed(const char* caller) {
  return refuse(ncclInvalidArgument, std::string(caller) + " is given no open communicator");
}

}  // namespace

ncclResult_t refuse(ncclResult_t error, std::string text) {
  text_of_thread = std::move(text);
  return error;
}

void reset_communicators() {
  const std::lock_guard lock(communicators().mutex);
  communicators().all.clear();
  communicators().by_identifier.clear();
}

}  // namespace canzona::emulated_gpu

namespace emulated = canzona::emulated_gpu;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* identifier) {
  *identifier = {};
  const std::lock_guard lock(emulated::communicators().mutex);
  const std::int64_t number = ++emulated::communicators().identifiers;
  std::memcpy(identifier->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId identifier, int rank) {
  return emulated::make(communicator, ranks, identifier, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId identifier, int rank,
                                    ncclConfig_t* config) {
  constexpr unsigned int kMagic = 0xcafebeef;  // NCCL_CONFIG_INITIALIZER's
  if (config != nullptr && config->magic != kMagic) {
    return emulated::refuse(ncclInvalidArgument, "ncclCommInitRankConfig: the configuration is not initialized");
  }
  const bool returns_early = config != nullptr && config->blocking == 0 && emulated::settings().init_in_progress;
  return emulated::make(communicator, ranks, identifier, rank, !returns_early);
}

ncclResult_t ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  if (!emulated::is_open(communicator) || part == nullptr) return emulated::refuse_closed("ncclCommSplit");
  *part = nullptr;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return emulated::refuse(ncclInvalidArgument, "ncclCommSplit: a negative color");
  }
  if (emulated::is_grouping()) return emulated::refuse(ncclInvalidUsage, "ncclCommSplit in a group is not emulated");
  emulated::Membership::Part own;
  const ncclResult_t result = communicator->members->split(communicator->rank, color, key, own);
  if (result != ncclSuccess) return emulated::refuse(result, communicator->members->exchange().text());
  if (own.members) *part = emulated::add(own.members, own.rank);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t communicator, int* count) {
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommCount");
  *count = communicator->members->ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank) {
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommUserRank");
  *rank = communicator->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t communicator, int* device) {
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommCuDevice");
  *device = communicator->device;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommFinalize");
  communicator->members->exchange().drain(communicator->rank, communicator->enqueued);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclSuccess;
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommDestroy");
  communicator->members->exchange().drain(communicator->rank, communicator->enqueued);
  communicator->open.store(false, std::memory_order_relaxed);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclSuccess;
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommAbort");
  communicator->members->exchange().fail(
      ncclRemoteError, "rank " + std::to_string(communicator->rank) + " has aborted the communicator");
  communicator->open.store(false, std::memory_order_relaxed);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  if (!emulated::is_open(communicator)) return emulated::refuse_closed("ncclCommGetAsyncError");
  *error = communicator->members->exchange().error();
  if (*error == ncclSuccess && !communicator->members->is_complete()) *error = ncclInProgress;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t communicator) {
  if (emulated::is_open(communicator) && communicator->members->exchange().error() != ncclSuccess) {
    return communicator->members->exchange().text().c_str();
  }
  return emulated::text_of_thread.c_str();
}
