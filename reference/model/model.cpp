#include "reference/model/model.hpp"

#include <fmt/format.h>

#include "reference/core/error.hpp"
#include "reference/model/split.hpp"

namespace canzona {
namespace {

constexpr std::int64_t kVocabularyMultiple = 128;

void require_divisible(const ModelConfig& config, const char* key, std::int64_t value, std::int64_t tp) {
  if (value % tp != 0) {
    throw InputError(config.origin, "tp", std::to_string(tp), fmt::format("a divisor of '{}' ({})", key, value));
  }
}

Parameter matrix(std::string name, Shape shape, Sharding sharding, std::vector<std::int64_t> row_segments, int layer) {
  Parameter parameter;
  parameter.blocks = {Block{"whole", {Range{0, shape.rows}}}};
  parameter.name = std::move(name);
  parameter.shape = shape;
  parameter.sharding = sharding;
  parameter.row_segments = std::move(row_segments);
  parameter.routing = Routing::matrix;
  parameter.layer = layer;
  return parameter;
}

Parameter elementwise(std::string name, Shape shape, Sharding sharding, int layer) {
  Parameter parameter = matrix(std::move(name), shape, sharding, {shape.rows}, layer);
  parameter.routing = Routing::elementwise;
  return parameter;
}

Parameter vocabulary(std::string name, const ModelConfig& config, std::int64_t tp, int layer) {
  const std::int64_t rows = align_up(config.vocab_size, checked_multiply(kVocabularyMultiple, tp));
  Parameter parameter = elementwise(std::move(name), {rows, config.hidden_size}, Sharding::rows, layer);
  parameter.padding_rows = rows - config.vocab_size;
  return parameter;
}

void add_decoder_layer(Model& model, const ModelConfig& config, const BlockSplit& split, int index) {
  const std::string prefix = fmt::format("decoder.layers.{}.", index);
  const int layer = index + 1;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.intermediate_size;
  const std::int64_t query = checked_multiply(config.num_attention_heads, config.head_dim);
  const std::int64_t key_value = checked_multiply(config.num_key_value_heads, config.head_dim);
  const std::int64_t qkv = checked_add(query, checked_multiply(2, key_value));
  auto& list = model.parameters;
  list.push_back(
      matrix(prefix + "self_attention.linear_proj.weight", {hidden, query}, Sharding::columns, {hidden}, layer));
  list.push_back(
      elementwise(prefix + "self_attention.linear_qkv.layer_norm_weight", {1, hidden}, Sharding::none, layer));
  // Rows interleave per query group, so a contiguous cut over tp ranks keeps whole groups.
  list.push_back(matrix(prefix + "self_attention.linear_qkv.weight", {qkv, hidden}, Sharding::rows, {qkv}, layer));
  if (split.qkv != BlockSplit::Qkv::none)
    list.back().blocks = qkv_blocks(list.back(), config, split.qkv == BlockSplit::Qkv::per_head);
  list.push_back(
      elementwise(prefix + "self_attention.q_layernorm.weight", {1, config.head_dim}, Sharding::none, layer));
  list.push_back(
      elementwise(prefix + "self_attention.k_layernorm.weight", {1, config.head_dim}, Sharding::none, layer));
  list.push_back(elementwise(prefix + "mlp.linear_fc1.layer_norm_weight", {1, hidden}, Sharding::none, layer));
  list.push_back(
      matrix(prefix + "mlp.linear_fc1.weight", {checked_multiply(2, ffn), hidden}, Sharding::rows, {ffn, ffn}, layer));
  if (split.fc1) list.back().blocks = gate_up_blocks(list.back(), config);
  list.push_back(matrix(prefix + "mlp.linear_fc2.weight", {hidden, ffn}, Sharding::columns, {hidden}, layer));
}

}  // namespace

std::int64_t Block::row_count() const {
  std::int64_t count = 0;
  for (const Range& range : rows) count += range.size();
  return count;
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) {
    count = checked_add(count, Shape{parameter.shape.rows - parameter.padding_rows, parameter.shape.cols}.numel());
  }
  return count;
}

std::int64_t Model::matrix_parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.routing == Routing::matrix) count = checked_add(count, parameter.shape.numel());
  }
  return count;
}

namespace {

Model build(const ModelConfig& config, std::int64_t tp, const BlockSplit& split) {
  if (tp > config.num_key_value_heads) {
    throw InputError(config.origin, "tp", std::to_string(tp),
                     fmt::format("at most 'num_key_value_heads' ({})", config.num_key_value_heads));
  }
  require_divisible(config, "num_key_value_heads", config.num_key_value_heads, tp);
  require_divisible(config, "num_attention_heads", config.num_attention_heads, tp);
  require_divisible(config, "intermediate_size", config.intermediate_size, tp);

  Model model;
  model.name = config.name;
  model.layers = static_cast<int>(config.num_hidden_layers);
  model.heads = {config.num_attention_heads, config.num_key_value_heads, config.head_dim};
  model.parameters.push_back(vocabulary("embedding.word_embeddings.weight", config, tp, 0));
  for (int index = 0; index < model.layers; ++index) add_decoder_layer(model, config, split, index);
  const int output = model.layers + 1;
  model.parameters.push_back(
      elementwise("decoder.final_layernorm.weight", {1, config.hidden_size}, Sharding::none, output));
  if (!config.tie_word_embeddings) model.parameters.push_back(vocabulary("output_layer.weight", config, tp, output));
  (void)model.parameter_count();  // overflow is refused here, once
  return model;
}

}  // namespace

Model build_model(const ModelConfig& config, std::int64_t tp, const BlockSplit& split) {
  try {
    return build(config, tp, split);
  } catch (const OverflowError&) {
    throw InputError(
        config.origin, "the model's size",
        fmt::format("beyond 64 bits (hidden_size {}, intermediate_size {}, vocab_size {}, num_hidden_layers {})",
                    config.hidden_size, config.intermediate_size, config.vocab_size, config.num_hidden_layers),
        "products and sums below 2⁶³");
  }
}

Model with_elementwise_routing(Model model) {
  for (Parameter& parameter : model.parameters) parameter.routing = Routing::elementwise;
  return model;
}

}  // namespace canzona
