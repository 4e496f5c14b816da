#include "optimized/engine/layers.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "reference/core/overloaded.hpp"
#include "reference/core/random.hpp"

namespace canzona::optimized {

template <class T>
LayersIn<T>::LayersIn(const Model& model, Rank& rank, const Tokens& tokens, Stream& compute, Stream& tp,
                      Weights weights)
    : rank_(rank),
      compute_(compute),
      tp_(tp),
      weights_(std::move(weights)),
      multiplied_(rank.device.make_event()),
      reduced_(rank.device.make_event()) {
  for (int layer = 0; layer <= model.layers + 1; ++layer)
    work_.push_back(layer_work(model, layer, rank.tp.size(), tokens.count, tokens.sequence));
  take_memory();
}

template <class T>
void LayersIn<T>::take_memory() {
  std::int64_t operand = 0, result = 0;
  std::optional<AttentionShape> attention;
  std::set<std::int64_t> reduced;
  const Overloaded count{[&](const WeightProduct& own) {
                           const Product& product = own.product;
                           operand = std::max({operand, product.m * product.k, product.k * product.n});
                           result = std::max(result, product.m * product.n);
                         },
                         [&](const AttentionPass& own) { attention = own.shape; },
                         [&](const ReduceActivations& own) { reduced.insert(own.elements); }};
  for (const LayerWork& work : work_) {
    for (const LayerOperation& operation : work.forward) std::visit(count, operation);
    for (const LayerOperation& operation : work.backward) std::visit(count, operation);
  }
  draw_operands(operand);
  results_ = rank_.device.allocate_elements<T>(result);
  if (attention) attention_ = std::make_unique<Attention<T>>(rank_.device, *attention);
  constexpr bool kNarrow = !std::is_same_v<T, float>;
  const Device::Taking taking(rank_.device, Purpose::communication);
  if (kNarrow && !reduced.empty()) sums_ = rank_.device.allocate_elements<float>(*reduced.rbegin());
  for (const std::int64_t elements : reduced) {
    reductions_[elements] = rank_.tp.all_reduce(rank_.device, (kNarrow ? sums_ : results_).template as<float>(),
                                                {0, elements}, kNarrow ? DType::bf16 : DType::fp32);
  }
}

/// Random numbers, which recur: products of zeros may run faster.
template <class T>
void LayersIn<T>::draw_operands(std::int64_t count) {
  operands_ = rank_.device.allocate_elements<T>(count);
  if (!rank_.device.holds_values()) return;
  constexpr std::int64_t kPeriod = 1 << 20;
  std::vector<T> drawn(static_cast<std::size_t>(std::min(count, kPeriod)));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = static_cast<T>(static_cast<float>(random_normal(1, static_cast<std::int64_t>(i))));
  for (std::int64_t begin = 0; begin < count; begin += kPeriod) {
    rank_.device.copy(compute_, drawn.data(), (operands_.as<T>() + begin).raw(),
                      static_cast<std::size_t>(std::min(kPeriod, count - begin)) * sizeof(T));
  }
  compute_.synchronize();
}

template <class T>
std::int64_t LayersIn<T>::perform(const std::vector<LayerOperation>& operations, int layer) {
  std::int64_t sent = 0;
  for (const LayerOperation& operation : operations) {
    std::visit(Overloaded{[&](const WeightProduct& own) { multiply(own, work_[static_cast<std::size_t>(layer)]); },
                          [&](const AttentionPass& own) {
                            own.is_backward ? attention_->backward(compute_) : attention_->forward(compute_);
                          },
                          [&](const ReduceActivations& own) { sent += reduce(*reductions_.at(own.elements)); }},
               operation);
  }
  return sent;
}

template <class T>
void LayersIn<T>::multiply(const WeightProduct& own, const LayerWork& work) {
  const bool makes_qkv = own.parameter == work.linear_qkv;
  const bool takes_context = own.parameter == work.linear_proj;
  const std::int64_t m = own.product.m, n = own.product.n, k = own.product.k;
  const DevicePointer<const T> operands = operands_.as<const T>();
  const MatrixView<T> result{results_.as<T>(), m, n};
  MatrixProducts<T>& algebra = rank_.device.linear_algebra().in<T>();
  switch (own.kind) {
    case WeightProduct::Kind::forward: {  // Y = X·Wᵀ
      const MatrixView<const T> X = takes_context ? in(attention_->context()) : MatrixView<const T>{operands, m, k};
      const MatrixView<T> Y = makes_qkv ? attention_->qkv() : result;
      return algebra.product(compute_, 1, X, Transpose::no, weights_(own.parameter), Transpose::yes, 0, Y);
    }
    case WeightProduct::Kind::input_gradient: {  // dX = dY·W
      const MatrixView<const T> dY = makes_qkv ? in(attention_->qkv_gradient()) : MatrixView<const T>{operands, m, k};
      const MatrixView<T> dX = takes_context ? attention_->context_gradient() : result;
      return algebra.product(compute_, 1, dY, Transpose::no, weights_(own.parameter), Transpose::no, 0, dX);
    }
    case WeightProduct::Kind::weight_gradient: {  // dW = dYᵀ·X
      const MatrixView<const T> dY = makes_qkv ? in(attention_->qkv_gradient()) : MatrixView<const T>{operands, k, m};
      const MatrixView<const T> X = takes_context ? in(attention_->context()) : MatrixView<const T>{operands, k, n};
      return algebra.product(compute_, 1, dY, Transpose::yes, X, Transpose::no, 0, result);
    }
  }
}

/// On the one stream that the communicator belongs to. It averages where Megatron-LM adds; nobody reads what it gives.
template <class T>
std::int64_t LayersIn<T>::reduce(Collective& reduction) {
  compute_.record(*multiplied_);
  tp_.wait(*multiplied_);
  reduction.start(tp_);
  tp_.record(*reduced_);
  compute_.wait(*reduced_);
  return reduction.bytes_sent();
}

template class LayersIn<float>;
template class LayersIn<Bf16>;
template class LayersIn<Fp16>;

}  // namespace canzona::optimized
