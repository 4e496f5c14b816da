// Causal softmax attention of one rank, forward and backward, in fp32: what AttentionShape describes, on a device. For
// layers.cpp.
#pragma once

#include "optimized/device/device.hpp"
#include "reference/model/layer_work.hpp"

namespace canzona::optimized {

/// Each row of scores becomes probabilities: e^(s − largest)/Σ over the tokens up to its own, 0 for later ones.
/// `largest` and `sums` hold a double for each row.
void softmax(Stream& stream, const AttentionShape& shape, DevicePointer<float> scores, DevicePointer<double> largest,
             DevicePointer<double> sums);

/// All memory is taken by the constructor. Matrices have a row for each token.
class Attention {
 public:
  Attention(Device& device, const AttentionShape& shape);

  /// context ← softmax(Q·Kᵀ/√dim)·V of every query head.
  void forward(Stream& stream);
  /// qkv_gradient from context_gradient, at the Q, K and V of the latest forward.
  void backward(Stream& stream);

  /// By group its query heads, its key head and its value head, as linear_qkv gives them.
  MatrixOut qkv() const { return activations(qkv_, shape_.qkv_cols()); }
  MatrixOut qkv_gradient() const { return activations(qkv_gradient_, shape_.qkv_cols()); }
  /// One query head after another.
  MatrixOut context() const { return activations(context_, shape_.context_cols()); }
  MatrixOut context_gradient() const { return activations(context_gradient_, shape_.context_cols()); }

 private:
  MatrixOut activations(const Buffer& buffer, std::int64_t cols) const {
    return {buffer.as<float>(), shape_.tokens(), cols};
  }
  void multiply(Stream& stream, const Product& product, float alpha, const Buffer& A, const Buffer& B, const Buffer& C);
  void make_probabilities(Stream& stream);

  Device& device_;
  AttentionShape shape_;
  Buffer qkv_, qkv_gradient_, context_, context_gradient_;
  // Stacks in which the tokens of a head follow one another, head after head, sequence after sequence.
  Buffer Q_, K_, V_, O_, dQ_, dK_, dV_, dO_;
  Buffer P_, dP_;  // first the scores, and then their gradients, stand there
  Buffer largest_, sums_;
};

}  // namespace canzona::optimized
