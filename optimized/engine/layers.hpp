// Forward and backward of a rank's layers, for the engine: the operations of layer_work, done on a device. Their
// numbers train nothing, and activations are those of one layer: attention works on what linear_qkv gives and
// linear_proj on what attention gives; the operands of other products are random.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "optimized/engine/attention.hpp"
#include "optimized/engine/rank.hpp"
#include "reference/model/layer_work.hpp"

namespace canzona::optimized {

/// What a forward or backward pass goes over: whole sequences.
struct Tokens {
  std::int64_t count = 64;
  std::int64_t sequence = 64;  ///< tokens of each
};

class Layers {
 public:
  /// The rank's shard of a parameter, for products that are put on `compute`.
  using Weights = std::function<MatrixIn(int parameter)>;

  /// All memory is taken here. Sums over the TP group run on `tp`, between what stands before and after them on
  /// `compute`. What is given must outlive the streams' work. Throws InputError unless tokens are whole sequences.
  Layers(const Model& model, Rank& rank, const Tokens& tokens, Stream& compute, Stream& tp, Weights weights);

  // Asynchronous on `compute`. They return the bytes that this rank sends.
  std::int64_t forward(int layer) { return perform(work_[static_cast<std::size_t>(layer)].forward, layer); }
  std::int64_t backward(int layer) { return perform(work_[static_cast<std::size_t>(layer)].backward, layer); }

 private:
  void take_memory();
  void draw_operands(std::int64_t count);
  std::int64_t perform(const std::vector<LayerOperation>& operations, int layer);
  void multiply(const WeightProduct& own, const LayerWork& work);
  std::int64_t reduce(Collective& reduction);

  Rank& rank_;
  Stream& compute_;
  Stream& tp_;
  Weights weights_;
  std::vector<LayerWork> work_;           // by layer
  std::unique_ptr<Attention> attention_;  // every decoder layer's
  Buffer operands_, results_;
  std::map<std::int64_t, std::unique_ptr<Collective>> reductions_;  // by elements: of the first results
  std::unique_ptr<Event> multiplied_, reduced_;
};

}  // namespace canzona::optimized
