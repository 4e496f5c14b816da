#include "reference/model/split.hpp"

#include <fmt/format.h>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

void require_rows(const Parameter& parameter, const ModelConfig& config, std::int64_t rows, const std::string& parts) {
  if (parameter.shape.rows == rows) return;
  throw InputError(config.origin, fmt::format("a split of {}", parameter.name),
                   fmt::format("for its {} rows", parameter.shape.rows), fmt::format("{} rows: {}", rows, parts));
}

}  // namespace

std::vector<Block> qkv_blocks(const Parameter& parameter, const ModelConfig& config, bool per_head) {
  const std::int64_t groups = config.num_key_value_heads;
  const std::int64_t queries = config.num_attention_heads / groups;
  const std::int64_t dim = config.head_dim;
  require_rows(parameter, config, checked_multiply(groups * (queries + 2), dim),
               fmt::format("{} groups of {} query heads, a key and a value head of {}", groups, queries, dim));
  std::vector<Block> blocks{{"q", {}}, {"k", {}}, {"v", {}}};
  if (per_head) blocks.clear();
  std::int64_t row = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t head = 0; head < queries + 2; ++head, row += dim) {
      const int kind = head < queries ? 0 : head == queries ? 1 : 2;
      const Range rows{row, row + dim};
      if (!per_head) {
        blocks[kind].rows.push_back(rows);
      } else if (kind == 0) {
        blocks.push_back({fmt::format("q{}", group * queries + head), {rows}});
      } else {
        blocks.push_back({fmt::format("{}{}", kind == 1 ? 'k' : 'v', group), {rows}});
      }
    }
  }
  return blocks;
}

std::vector<Block> gate_up_blocks(const Parameter& parameter, const ModelConfig& config) {
  const std::int64_t ffn = config.intermediate_size;
  require_rows(parameter, config, checked_multiply(2, ffn), fmt::format("gate and up of {}", ffn));
  return {{"gate", {{0, ffn}}}, {"up", {{ffn, 2 * ffn}}}};
}

BlockSplit parse_split(const std::string& qkv, const std::string& fc1) {
  BlockSplit split;
  if (qkv == "qkv") {
    split.qkv = BlockSplit::Qkv::qkv;
  } else if (qkv == "per-head") {
    split.qkv = BlockSplit::Qkv::per_head;
  } else if (qkv != "none") {
    throw InputError("", "--split-qkv", "'" + qkv + "'", "none, qkv, per-head");
  }
  if (fc1 != "on" && fc1 != "off") throw InputError("", "--split-fc1", "'" + fc1 + "'", "on, off");
  split.fc1 = fc1 == "on";
  return split;
}

std::string name_of(const BlockSplit& split) {
  const char* qkv = split.qkv == BlockSplit::Qkv::none  ? "none"
                    : split.qkv == BlockSplit::Qkv::qkv ? "qkv"
                                                        : "per-head";
  return fmt::format("qkv {}, fc1 {}", qkv, split.fc1 ? "on" : "off");
}

}  // namespace canzona
