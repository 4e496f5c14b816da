// The ordered parameters of a model as Megatron stores them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/core/shape.hpp"
#include "reference/model/config.hpp"

namespace canzona {

/// How tensor parallelism cuts a parameter. Each of a parameter's row segments is cut by itself.
enum class Sharding { none, rows, columns };

/// Who updates a parameter: the matrix optimizer, which needs it whole, or an elementwise one (AdamW), which does not.
enum class Routing { matrix, elementwise };

/// An independent matrix inside a parameter: an ordered list of its rows. Q of an interleaved linear_qkv is
/// one block of as many ranges as there are query groups.
struct Block {
  std::string name;
  std::vector<Range> rows;

  std::int64_t row_count() const;
};

/// One weight. `shape` is the full shape as stored, vocabulary padding included.
struct Parameter {
  std::string name;
  Shape shape;
  std::int64_t padding_rows = 0;  ///< trailing rows that pad the vocabulary
  Sharding sharding = Sharding::none;
  /// Rows of each part that row sharding cuts separately, in order; they sum to shape.rows. A rank's shard of
  /// linear_fc1 is [its share of gate; its share of up], so linear_fc1 has two.
  std::vector<std::int64_t> row_segments;
  Routing routing = Routing::elementwise;
  int layer = 0;  ///< 0 embedding, 1…L decoder layers, L + 1 output
  std::vector<Block> blocks;

  Shape block_shape(const Block& block) const { return {block.row_count(), shape.cols}; }
};

/// Of a decoder layer's attention. Equally many query heads share each key/value head.
struct Heads {
  std::int64_t queries = 0;
  std::int64_t key_values = 0;
  std::int64_t dim = 0;
};

struct Model {
  std::string name;
  std::vector<Parameter> parameters;  ///< in the order of Megatron's named_parameters()
  int layers = 0;                     ///< decoder layers L; Forward and Backward run over L + 2 layers
  Heads heads;

  /// Elements without vocabulary padding: all of them, and those of the decoder's weight matrices.
  std::int64_t parameter_count() const;
  std::int64_t matrix_parameter_count() const;
};

/// Which parameters are updated as several matrices (split.hpp).
struct BlockSplit {
  enum class Qkv { none, qkv, per_head };

  Qkv qkv = Qkv::none;
  bool fc1 = false;  ///< gate and up
  friend bool operator==(const BlockSplit&, const BlockSplit&) = default;
};

/// The parameters of `config`, stored for tensor parallelism over `tp` ranks: linear_qkv, linear_proj,
/// linear_fc1 (gate over up), linear_fc2, norms, embedding, and the output layer unless tied; vocabulary padded
/// to a multiple of 128·tp (Megatron's make-vocab-size-divisible-by).
/// Throws InputError when `tp` does not divide the heads or the feed-forward size.
Model build_model(const ModelConfig& config, std::int64_t tp, const BlockSplit& split = {});

/// The same model with every parameter routed to the elementwise optimizer.
Model with_elementwise_routing(Model model);

}  // namespace canzona
