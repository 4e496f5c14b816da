// What a tensor-parallel rank does in forward and backward of a layer: the engine does it, the simulator times it, and
// calibration measures its parts. Norms, rotary embeddings, residual sums and SwiGLU are left out.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "reference/model/model.hpp"

namespace canzona {

/// `count` products of m × k by k × n, of matrices that follow one another; row-major, an operand may lie transposed.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t count = 1;
  bool transposes_a = false;
  bool transposes_b = false;
};

/// A product of activations X or their gradients dY with the rank's shard of a weight W, or of both for dW.
struct WeightProduct {
  enum class Kind {
    forward,          ///< Y = X·Wᵀ
    input_gradient,   ///< dX = dY·W
    weight_gradient,  ///< dW = dYᵀ·X
  };
  Kind kind = Kind::forward;
  int parameter = 0;
  Product product;
};

/// Causal attention of one rank. Several query heads share a key head and a value head; they are a group.
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t sequence = 0;  ///< tokens of each
  std::int64_t groups = 0;
  std::int64_t queries = 0;  ///< heads of a group
  std::int64_t dim = 0;      ///< of a head

  std::int64_t tokens() const { return sequences * sequence; }
  std::int64_t heads() const { return groups * queries; }
  std::int64_t qkv_cols() const { return groups * (queries + 2) * dim; }  ///< of what linear_qkv gives for a token
  std::int64_t context_cols() const { return heads() * dim; }             ///< of what linear_proj takes
  std::int64_t scores() const { return heads() * tokens() * sequence; }   ///< masked ones among them

  /// Each for every group of every sequence, whose query heads stand below one another: no key or value is copied, and
  /// the sums over a group's heads are made inside the products. P = softmax(S), row by row.
  Product score_products() const;         ///< S = Q·Kᵀ/√dim
  Product context_products() const;       ///< O = P·V
  Product value_gradients() const;        ///< dV = Pᵀ·dO
  Product probability_gradients() const;  ///< dP = dO·Vᵀ
  Product query_gradients() const;        ///< dQ = dS·K/√dim
  Product key_gradients() const;          ///< dK = dSᵀ·Q/√dim
};

/// Forward, or backward, which makes the probabilities once more, as FlashAttention does: they are not kept.
struct AttentionPass {
  AttentionShape shape;
  bool is_backward = false;

  std::vector<Product> products() const;
  /// Of scores made probabilities: read for the largest of each row, read for the exponentials, which are written, read
  /// and divided by their sum.
  std::int64_t softmax_elements() const;
  /// Read and written by each other elementwise pass.
  std::vector<std::int64_t> elementwise_elements() const;
};

/// Partial sums of activations, added up over the TP group in fp32.
struct ReduceActivations {
  std::int64_t elements = 0;
};

using LayerOperation = std::variant<WeightProduct, AttentionPass, ReduceActivations>;

/// In order. A decoder layer's attention works on what linear_qkv gives, and linear_proj on what attention gives.
struct LayerWork {
  std::vector<LayerOperation> forward, backward;
  int linear_qkv = -1;  ///< parameters; −1 in a layer without attention
  int linear_proj = -1;
};

/// Of layer 0 (the embedding, which is looked up) nothing; of the layer after the last decoder layer the product with
/// the output's weight, which may be the embedding's. With tp > 1 the partial sums of column-sharded weights are
/// reduced forward and those of row-sharded weights backward, as Megatron-LM does without sequence parallelism: twice
/// each in a decoder layer. Throws InputError unless `tokens` are whole sequences.
LayerWork layer_work(const Model& model, int layer, int tp, std::int64_t tokens, std::int64_t sequence);

}  // namespace canzona
