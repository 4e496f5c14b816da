// NCCL's operations as data: how they are called in messages, and how they move memory.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace canzona::emulated_gpu {

enum class Kind { kAllReduce, kReduce, kBroadcast, kReduceScatter, kAllGather, kSend, kReceive };

struct Operation {
  Kind kind;
  const void* source;
  void* target;
  /// Elements, as the call counts them.
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  /// The root, or of a send or a receive the other rank.
  int peer = 0;
};

bool is_transfer(Kind kind);
bool reduces(Kind kind);
bool has_root(Kind kind);

/// 0 for a type that is not emulated.
std::size_t size_of(ncclDataType_t type);

/// "calls all-reduce of 5 float", "sends 5 float to rank 1".
std::string describe(const Operation& operation);
/// With the reduction and the root.
std::string describe_fully(const Operation& operation);

/// Whether two ranks may call these together.
bool agree(const Operation& a, const Operation& b);

/// One collective, with each rank's own call of it. Ranks are added in their order; bfloat16 and half in float, rounded
/// once.
void move_collective(const std::vector<const Operation*>& of_ranks);
void move_transfer(const Operation& send, const Operation& receive);

}  // namespace canzona::emulated_gpu
