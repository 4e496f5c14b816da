// NCCL's groups and collectives: calls are checked here, gathered by communicator, and put on their streams.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/communicator.hpp"
#include "tests/emulated_gpu/memory.hpp"
#include "tests/emulated_gpu/operations.hpp"
#include "tests/emulated_gpu/streams.hpp"

namespace canzona::emulated_gpu {

namespace {

struct Call {
  ncclComm* communicator;
  Stream* stream;
  Operation operation;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Call> calls;
};

thread_local Group group;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce: return "ncclAllReduce";
    case Kind::kReduce: return "ncclReduce";
    case Kind::kBroadcast: return "ncclBroadcast";
    case Kind::kReduceScatter: return "ncclReduceScatter";
    case Kind::kAllGather: return "ncclAllGather";
    case Kind::kSend: return "ncclSend";
    case Kind::kReceive: return "ncclRecv";
  }
  return "";
}

/// Bytes that the rank's own call reads and writes.
struct Span {
  std::size_t source;
  std::size_t target;
};

Span span_of(const Operation& call, const ncclComm& communicator) {
  const std::size_t bytes = call.count * size_of(call.type);
  const std::size_t all = bytes * static_cast<std::size_t>(communicator.members->ranks());
  const bool is_root = communicator.rank == call.peer;
  switch (call.kind) {
    case Kind::kAllReduce: return {bytes, bytes};
    case Kind::kReduce: return {bytes, is_root ? bytes : 0};
    case Kind::kBroadcast: return {is_root ? bytes : 0, bytes};
    case Kind::kReduceScatter: return {all, bytes};
    case Kind::kAllGather: return {bytes, all};
    case Kind::kSend: return {bytes, 0};
    case Kind::kReceive: return {0, bytes};
  }
  return {0, 0};
}

/// Buffers may overlap in the way that NCCL documents as in place, and no other.
bool overlaps_wrongly(const Operation& call, const ncclComm& communicator) {
  const Span span = span_of(call, communicator);
  const auto* source = static_cast<const std::byte*>(call.source);
  const auto* target = static_cast<const std::byte*>(call.target);
  const std::less<> before;
  if (span.source == 0 || span.target == 0 || !before(source, target + span.target) ||
      !before(target, source + span.source)) {
    return false;
  }
  const std::size_t own = static_cast<std::size_t>(communicator.rank) * std::min(span.source, span.target);
  if (call.kind == Kind::kReduceScatter) return target != source + own;
  if (call.kind == Kind::kAllGather) return source != target + own;
  return source != target;
}

/// nullptr if there is none.
const char* fault_of(const Operation& call, const ncclComm& communicator) {
  if (!communicator.members->is_complete()) return " is called before the communicator is ready";
  if (size_of(call.type) == 0) return " is given a type that is not emulated";
  if (reduces(call.kind) && (call.reduction < ncclSum || call.reduction > ncclAvg)) {
    return " is given an unknown reduction";
  }
  if (call.peer < 0 || call.peer >= communicator.members->ranks()) return " names a rank that there is not";
  if (overlaps_wrongly(call, communicator)) return ": the buffers overlap other than in place";
  return nullptr;
}

ncclResult_t checked(const Operation& call, const ncclComm* communicator, cudaStream_t stream) {
  const std::string caller = name_of(call.kind);
  if (!is_open(communicator)) return refuse(ncclInvalidArgument, caller + " is given no open communicator");
  if (const char* fault = fault_of(call, *communicator)) return refuse(ncclInvalidArgument, caller + fault);
  const Stream* open = open_stream(name_of(call.kind), stream);
  if (open == nullptr || open->device() != communicator->device) {
    return refuse(ncclUnhandledCudaError, caller + " is given no stream of the communicator's device");
  }
  const Span span = span_of(call, *communicator);
  if (!are_usable(name_of(call.kind), open->device(),
                  {{"the source", call.source, span.source}, {"the target", call.target, span.target}})) {
    return refuse(ncclInvalidArgument, caller + " is given memory that the device may not use");
  }
  return ncclSuccess;
}

/// A communicator's calls of one group: on the stream of the first, with the other streams before and after.
void launch_together(ncclComm& communicator, const std::vector<Call>& calls) {
  auto batch = std::make_shared<Batch>();
  std::vector<Stream*> streams;
  for (const Call& call : calls) {
    if (call.communicator != &communicator) continue;
    (is_transfer(call.operation.kind) ? batch->transfers : batch->collectives).push_back(call.operation);
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) streams.push_back(call.stream);
  }
  Stream& first = *streams.front();
  for (std::size_t i = 1; i < streams.size(); ++i) first.wait(streams[i]->record());
  // The exchange lives until `reset`, and the stream alone owns the batch: counting owners would order them.
  first.push([&exchange = communicator.members->exchange(), rank = communicator.rank, number = communicator.enqueued++,
              batch = std::move(batch)] { exchange.meet(rank, number, *batch); });
  for (std::size_t i = 1; i < streams.size(); ++i) streams[i]->wait(first.record());
}

void launch(const std::vector<Call>& calls) {
  std::vector<const ncclComm*> launched;
  for (const Call& call : calls) {
    if (std::find(launched.begin(), launched.end(), call.communicator) != launched.end()) continue;
    launched.push_back(call.communicator);
    launch_together(*call.communicator, calls);
  }
}

ncclResult_t enqueue(const Operation& operation, ncclComm* communicator, cudaStream_t stream) {
  const ncclResult_t result = checked(operation, communicator, stream);
  if (result != ncclSuccess) {
    if (group.depth > 0) group.error = result;
    return result;
  }
  if (operation.count == 0 && !is_transfer(operation.kind)) return ncclSuccess;
  const Call call{communicator, stream, operation};
  if (group.depth > 0) {
    group.calls.push_back(call);
  } else {
    launch({call});
  }
  return ncclSuccess;
}

}  // namespace

bool is_grouping() { return group.depth > 0; }

}  // namespace canzona::emulated_gpu

namespace emulated = canzona::emulated_gpu;
using emulated::Kind;

ncclResult_t ncclGroupStart() {
  ++emulated::group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  emulated::Group& group = emulated::group;
  if (group.depth == 0) return emulated::refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const emulated::Group ended = std::exchange(group, {});
  if (ended.error == ncclSuccess) emulated::launch(ended.calls);
  return ended.error;
}

ncclResult_t ncclAllReduce(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  return emulated::enqueue({Kind::kAllReduce, source, target, count, type, reduction}, communicator, stream);
}

ncclResult_t ncclReduce(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return emulated::enqueue({Kind::kReduce, source, target, count, type, reduction, root}, communicator, stream);
}

ncclResult_t ncclBroadcast(const void* source, void* target, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return emulated::enqueue({Kind::kBroadcast, source, target, count, type, ncclSum, root}, communicator, stream);
}

ncclResult_t ncclReduceScatter(const void* source, void* target, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  return emulated::enqueue({Kind::kReduceScatter, source, target, count, type, reduction}, communicator, stream);
}

ncclResult_t ncclAllGather(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return emulated::enqueue({Kind::kAllGather, source, target, count, type}, communicator, stream);
}

ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return emulated::enqueue({Kind::kSend, source, nullptr, count, type, ncclSum, peer}, communicator, stream);
}

ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return emulated::enqueue({Kind::kReceive, nullptr, target, count, type, ncclSum, peer}, communicator, stream);
}
