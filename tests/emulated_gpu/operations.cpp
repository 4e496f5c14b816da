// Texts and movements of NCCL's operations.
#include "tests/emulated_gpu/operations.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace canzona::emulated_gpu {

namespace {

const char* name_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return "int8";
    case ncclUint8: return "uint8";
    case ncclInt32: return "int32";
    case ncclUint32: return "uint32";
    case ncclInt64: return "int64";
    case ncclUint64: return "uint64";
    case ncclFloat16: return "half";
    case ncclFloat32: return "float";
    case ncclFloat64: return "double";
    case ncclBfloat16: return "bfloat16";
    default: return "elements of unknown type";
  }
}

const char* name_of(ncclRedOp_t reduction) {
  switch (reduction) {
    case ncclSum: return "sum";
    case ncclProd: return "product";
    case ncclMax: return "maximum";
    case ncclMin: return "minimum";
    case ncclAvg: return "average";
    default: return "unknown reduction";
  }
}

const char* verb_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce: return "calls all-reduce of ";
    case Kind::kReduce: return "calls reduce of ";
    case Kind::kBroadcast: return "calls broadcast of ";
    case Kind::kReduceScatter: return "calls reduce-scatter of ";
    case Kind::kAllGather: return "calls all-gather of ";
    case Kind::kSend: return "sends ";
    case Kind::kReceive: return "receives ";
  }
  return "";
}

/// Elements that are reduced together: small enough for the stack.
constexpr std::size_t kChunk = 1024;

template <class Sum>
void combine(ncclRedOp_t reduction, Sum value, Sum& sum) {
  switch (reduction) {
    case ncclProd: sum *= value; break;
    case ncclMax: sum = std::max(sum, value); break;
    case ncclMin: sum = std::min(sum, value); break;
    default: sum += value; break;
  }
}

/// Elements begin to begin + count of all sources, to the same places of all targets. A chunk is written after it was
/// read from all: so a target may be a source.
template <class Element, class Sum>
void reduce(ncclRedOp_t reduction, const std::vector<const void*>& sources, std::size_t source_offset,
            const std::vector<void*>& targets, std::size_t count) {
  std::array<Sum, kChunk> sums;
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    const std::size_t length = std::min(kChunk, count - begin);
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      const Element* values = static_cast<const Element*>(sources[rank]) + source_offset + begin;
      for (std::size_t i = 0; i < length; ++i) {
        const Sum value = static_cast<Sum>(values[i]);
        if (rank == 0) {
          sums[i] = value;
        } else {
          combine(reduction, value, sums[i]);
        }
      }
    }
    for (std::size_t i = 0; i < length; ++i) {
      const Sum result = reduction == ncclAvg ? sums[i] / static_cast<Sum>(sources.size()) : sums[i];
      for (void* target : targets) static_cast<Element*>(target)[begin + i] = static_cast<Element>(result);
    }
  }
}

void reduce_of_type(const Operation& call, const std::vector<const void*>& sources, std::size_t source_offset,
                    const std::vector<void*>& targets) {
  const auto run = [&]<class Element, class Sum>(Element, Sum) {
    reduce<Element, Sum>(call.reduction, sources, source_offset, targets, call.count);
  };
  switch (call.type) {
    case ncclInt8: return run(std::int8_t{}, std::int64_t{});
    case ncclUint8: return run(std::uint8_t{}, std::uint64_t{});
    case ncclInt32: return run(std::int32_t{}, std::int64_t{});
    case ncclUint32: return run(std::uint32_t{}, std::uint64_t{});
    case ncclInt64: return run(std::int64_t{}, std::int64_t{});
    case ncclUint64: return run(std::uint64_t{}, std::uint64_t{});
    case ncclFloat16: return run(__half{}, float{});
    case ncclFloat32: return run(float{}, float{});
    case ncclFloat64: return run(double{}, double{});
    case ncclBfloat16: return run(__nv_bfloat16{}, float{});
    default: return;
  }
}

/// In place, source and target are the same.
void copy(void* target, const void* source, std::size_t bytes) {
  if (target != source && bytes > 0) std::memcpy(target, source, bytes);
}

}  // namespace

bool is_transfer(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

bool reduces(Kind kind) { return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }

bool has_root(Kind kind) { return kind == Kind::kReduce || kind == Kind::kBroadcast; }

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

std::string describe(const Operation& operation) {
  std::string text = verb_of(operation.kind) + std::to_string(operation.count) + " " + name_of(operation.type);
  if (operation.kind == Kind::kSend) text += " to rank " + std::to_string(operation.peer);
  if (operation.kind == Kind::kReceive) text += " from rank " + std::to_string(operation.peer);
  return text;
}

std::string describe_fully(const Operation& operation) {
  std::string text = describe(operation);
  if (reduces(operation.kind)) text += std::string(" by ") + name_of(operation.reduction);
  if (has_root(operation.kind)) text += " with root " + std::to_string(operation.peer);
  return text;
}

bool agree(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type &&
         (!reduces(a.kind) || a.reduction == b.reduction) && (!has_root(a.kind) || a.peer == b.peer);
}

void move_collective(const std::vector<const Operation*>& of_ranks) {
  const Operation& call = *of_ranks.front();
  const std::size_t bytes = call.count * size_of(call.type);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (const Operation* own : of_ranks) {
    sources.push_back(own->source);
    targets.push_back(own->target);
  }
  const auto root = static_cast<std::size_t>(call.peer);
  switch (call.kind) {
    case Kind::kAllReduce: return reduce_of_type(call, sources, 0, targets);
    case Kind::kReduce: return reduce_of_type(call, sources, 0, {targets[root]});
    case Kind::kReduceScatter:
      for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
        reduce_of_type(call, sources, rank * call.count, {targets[rank]});
      }
      return;
    case Kind::kBroadcast:
      for (void* target : targets) copy(target, sources[root], bytes);
      return;
    case Kind::kAllGather:
      for (void* target : targets) {
        for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
          copy(static_cast<std::byte*>(target) + rank * bytes, sources[rank], bytes);
        }
      }
      return;
    case Kind::kSend:
    case Kind::kReceive: return;
  }
}

void move_transfer(const Operation& send, const Operation& receive) {
  copy(receive.target, send.source, send.count * size_of(send.type));
}

}  // namespace canzona::emulated_gpu
