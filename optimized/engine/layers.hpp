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

/// Whatever the type of their weights.
class Layers {
 public:
  Layers() = default;
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;
  virtual ~Layers() = default;

  // Asynchronous on the stream for computing. They return the bytes that this rank sends.
  virtual std::int64_t forward(int layer) = 0;
  virtual std::int64_t backward(int layer) = 0;
};

/// With weights, activations and their gradients in T.
template <class T>
class LayersIn final : public Layers {
 public:
  /// The rank's shard of a parameter, for products that are put on `compute`.
  using Weights = std::function<MatrixView<const T>(int parameter)>;

  /// All memory is taken here. Sums over the TP group run on `tp`, between what stands before and after them on
  /// `compute`. What is given must outlive the streams' work. Throws InputError unless tokens are whole sequences.
  LayersIn(const Model& model, Rank& rank, const Tokens& tokens, Stream& compute, Stream& tp, Weights weights);

  std::int64_t forward(int layer) override { return perform(work_[static_cast<std::size_t>(layer)].forward, layer); }
  std::int64_t backward(int layer) override { return perform(work_[static_cast<std::size_t>(layer)].backward, layer); }

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
  std::vector<LayerWork> work_;              // by layer
  std::unique_ptr<Attention<T>> attention_;  // every decoder layer's
  Buffer operands_, results_;
  Buffer sums_;  // stands for results that are not fp32 when they are added up: as many, sent in two bytes each
  std::map<std::int64_t, std::unique_ptr<Collective>> reductions_;  // by elements: of the first results
  std::unique_ptr<Event> multiplied_, reduced_;
};

extern template class LayersIn<float>;
extern template class LayersIn<Bf16>;
extern template class LayersIn<Fp16>;

}  // namespace canzona::optimized
