#include "reference/model/layer_work.hpp"

#include <fmt/format.h>

#include <string_view>

#include "reference/core/error.hpp"
#include "reference/model/shard.hpp"

namespace canzona {
namespace {

/// The weight of a layer with this name; −1 where there is none.
int weight_of(const Model& model, int layer, std::string_view name) {
  for (int index = 0; index < static_cast<int>(model.parameters.size()); ++index) {
    const Parameter& parameter = model.parameters[index];
    if (parameter.layer == layer && parameter.name.ends_with(fmt::format("{}.weight", name))) return index;
  }
  return -1;
}

/// Adds operations of one layer.
class Builder {
 public:
  Builder(const Model& model, int tp, std::int64_t tokens, LayerWork& work)
      : model_(model), tp_(tp), tokens_(tokens), work_(work) {}

  void forward(int parameter) {
    const Shape shard = shard_of(parameter);
    work_.forward.emplace_back(
        WeightProduct{WeightProduct::Kind::forward, parameter, {tokens_, shard.rows, shard.cols, 1, false, true}});
    if (leaves_sums(parameter, Sharding::columns)) work_.forward.emplace_back(ReduceActivations{tokens_ * shard.rows});
  }

  void backward(int parameter) {
    const Shape shard = shard_of(parameter);
    work_.backward.emplace_back(WeightProduct{
        WeightProduct::Kind::input_gradient, parameter, {tokens_, shard.cols, shard.rows, 1, false, false}});
    if (leaves_sums(parameter, Sharding::rows)) work_.backward.emplace_back(ReduceActivations{tokens_ * shard.cols});
    work_.backward.emplace_back(WeightProduct{
        WeightProduct::Kind::weight_gradient, parameter, {shard.rows, shard.cols, tokens_, 1, true, false}});
  }

 private:
  Shape shard_of(int parameter) const { return shard_shape(model_.parameters[parameter], tp_); }
  bool leaves_sums(int parameter, Sharding sharding) const {
    return tp_ > 1 && model_.parameters[parameter].sharding == sharding;
  }

  const Model& model_;
  int tp_;
  std::int64_t tokens_;
  LayerWork& work_;
};

}  // namespace

Product AttentionShape::score_products() const {
  return {queries * sequence, sequence, dim, sequences * groups, false, true};
}
Product AttentionShape::context_products() const {
  return {queries * sequence, dim, sequence, sequences * groups, false, false};
}
Product AttentionShape::value_gradients() const {
  return {sequence, dim, queries * sequence, sequences * groups, true, false};
}
Product AttentionShape::probability_gradients() const { return score_products(); }
Product AttentionShape::query_gradients() const { return context_products(); }
Product AttentionShape::key_gradients() const { return value_gradients(); }

std::vector<Product> AttentionPass::products() const {
  if (!is_backward) return {shape.score_products(), shape.context_products()};
  return {shape.score_products(), shape.value_gradients(), shape.probability_gradients(), shape.query_gradients(),
          shape.key_gradients()};
}

std::int64_t AttentionPass::softmax_elements() const { return 5 * shape.scores(); }

std::vector<std::int64_t> AttentionPass::elementwise_elements() const {
  // Heads are brought together, or back to their tokens: read and written. Q, K and V go by themselves.
  const std::int64_t query = 2 * shape.tokens() * shape.context_cols();
  const std::int64_t key = query / shape.queries;
  if (!is_backward) return {query, key, key, query};
  // dS = P∘(dP − Σ P∘dP): both read for the sum; both read, dS written.
  return {query, 2 * shape.scores(), 3 * shape.scores(), query, key, key};
}

LayerWork layer_work(const Model& model, int layer, int tp, std::int64_t tokens, std::int64_t sequence) {
  if (tokens % sequence != 0) {
    throw InputError("", "the number of tokens", std::to_string(tokens),
                     fmt::format("whole sequences of {} tokens", sequence));
  }
  LayerWork work;
  Builder add(model, tp, tokens, work);
  if (layer == model.layers + 1) {
    const int own = weight_of(model, layer, "output_layer");
    const int output = own >= 0 ? own : weight_of(model, 0, "word_embeddings");
    add.forward(output);
    add.backward(output);
  } else if (layer > 0) {
    const int fc1 = weight_of(model, layer, "linear_fc1");
    const int fc2 = weight_of(model, layer, "linear_fc2");
    const Heads& heads = model.heads;
    const AttentionShape attention{tokens / sequence, sequence, heads.key_values / tp, heads.queries / heads.key_values,
                                   heads.dim};
    work.linear_qkv = weight_of(model, layer, "linear_qkv");
    work.linear_proj = weight_of(model, layer, "linear_proj");
    add.forward(work.linear_qkv);
    work.forward.emplace_back(AttentionPass{attention, false});
    for (const int parameter : {work.linear_proj, fc1, fc2}) add.forward(parameter);
    for (const int parameter : {fc2, fc1, work.linear_proj}) add.backward(parameter);
    work.backward.emplace_back(AttentionPass{attention, true});
    add.backward(work.linear_qkv);
  }
  return work;
}

}  // namespace canzona
