// The independent matrices inside one parameter: Q, K and V, or each head, and gate and up.
#pragma once

#include <string>
#include <vector>

#include "reference/model/model.hpp"

namespace canzona {

/// linear_qkv as one matrix per kind of row, Q gathered from every query group, K and V likewise; or as one per head.
/// Its rows interleave per query group: [heads/groups query heads, a key head, a value head] of head_dim rows each.
/// Throws InputError naming `parameter` and both sizes when its rows are no such sequence.
std::vector<Block> qkv_blocks(const Parameter& parameter, const ModelConfig& config, bool per_head);

/// linear_fc1 as gate and up. Throws InputError when its rows are not twice the feed-forward size.
std::vector<Block> gate_up_blocks(const Parameter& parameter, const ModelConfig& config);

/// Throws InputError unless the words are none, qkv or per-head, and on or off.
BlockSplit parse_split(const std::string& qkv, const std::string& fc1);

/// "qkv none, fc1 off".
std::string name_of(const BlockSplit& split);

}  // namespace canzona
