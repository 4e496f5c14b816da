// Causal softmax attention of one rank, forward and backward: what AttentionShape describes, on a device. For
// layers.cpp.
#pragma once

#include "optimized/device/device.hpp"
#include "reference/model/layer_work.hpp"

namespace canzona::optimized {

/// Each row of scores becomes probabilities: e^(s − largest)/Σ over the tokens up to its own, 0 for later ones.
/// `largest` and `sums` hold a double for each row.
template <class T>
void softmax(Stream& stream, const AttentionShape& shape, DevicePointer<T> scores, DevicePointer<double> largest,
             DevicePointer<double> sums);

/// Matrices are kept in T, and have a row for each token. All memory is taken by the constructor.
template <class T>
class Attention {
 public:
  Attention(Device& device, const AttentionShape& shape);

  /// context ← softmax(Q·Kᵀ/√dim)·V of every query head.
  void forward(Stream& stream);
  /// qkv_gradient from context_gradient, at the Q, K and V of the latest forward.
  void backward(Stream& stream);

  /// By group its query heads, its key head and its value head, as linear_qkv gives them.
  MatrixView<T> qkv() const { return activations(qkv_, shape_.qkv_cols()); }
  MatrixView<T> qkv_gradient() const { return activations(qkv_gradient_, shape_.qkv_cols()); }
  /// One query head after another.
  MatrixView<T> context() const { return activations(context_, shape_.context_cols()); }
  MatrixView<T> context_gradient() const { return activations(context_gradient_, shape_.context_cols()); }

 private:
  MatrixView<T> activations(const Buffer& buffer, std::int64_t cols) const {
    return {buffer.as<T>(), shape_.tokens(), cols};
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

extern template class Attention<float>;
extern template class Attention<Bf16>;
extern template class Attention<Fp16>;

}  // namespace canzona::optimized
