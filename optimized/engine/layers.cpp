#include "optimized/engine/layers.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "reference/core/overloaded.hpp"
#include "reference/core/random.hpp"

namespace canzona::optimized {

Layers::Layers(const Model& model, Rank& rank, const Tokens& tokens, Stream& compute, Stream& tp, Weights weights)
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

void Layers::take_memory() {
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
  results_ = rank_.device.allocate_elements<float>(result);
  if (attention) attention_ = std::make_unique<Attention>(rank_.device, *attention);
  for (const std::int64_t elements : reduced)
    reductions_[elements] = rank_.tp.all_reduce(rank_.device, results_.as<float>(), {0, elements}, DType::fp32);
}

/// Random numbers, which recur: products of zeros may run faster.
void Layers::draw_operands(std::int64_t count) {
  constexpr std::int64_t kPeriod = 1 << 20;
  std::vector<float> drawn(static_cast<std::size_t>(std::min(count, kPeriod)));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = static_cast<float>(random_normal(1, static_cast<std::int64_t>(i)));
  operands_ = rank_.device.allocate_elements<float>(count);
  for (std::int64_t begin = 0; begin < count; begin += kPeriod) {
    rank_.device.copy(compute_, drawn.data(), (operands_.as<float>() + begin).raw(),
                      static_cast<std::size_t>(std::min(kPeriod, count - begin)) * sizeof(float));
  }
  compute_.synchronize();
}

std::int64_t Layers::perform(const std::vector<LayerOperation>& operations, int layer) {
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

void Layers::multiply(const WeightProduct& own, const LayerWork& work) {
  const bool makes_qkv = own.parameter == work.linear_qkv;
  const bool takes_context = own.parameter == work.linear_proj;
  const std::int64_t m = own.product.m, n = own.product.n, k = own.product.k;
  const DevicePointer<const float> operands = operands_.as<const float>();
  const MatrixOut result{results_.as<float>(), m, n};
  LinearAlgebra& algebra = rank_.device.linear_algebra();
  switch (own.kind) {
    case WeightProduct::Kind::forward: {  // Y = X·Wᵀ
      const MatrixIn X = takes_context ? in(attention_->context()) : MatrixIn{operands, m, k};
      const MatrixOut Y = makes_qkv ? attention_->qkv() : result;
      return algebra.product(compute_, 1, X, Transpose::no, weights_(own.parameter), Transpose::yes, 0, Y);
    }
    case WeightProduct::Kind::input_gradient: {  // dX = dY·W
      const MatrixIn dY = makes_qkv ? in(attention_->qkv_gradient()) : MatrixIn{operands, m, k};
      const MatrixOut dX = takes_context ? attention_->context_gradient() : result;
      return algebra.product(compute_, 1, dY, Transpose::no, weights_(own.parameter), Transpose::no, 0, dX);
    }
    case WeightProduct::Kind::weight_gradient: {  // dW = dYᵀ·X
      const MatrixIn dY = makes_qkv ? in(attention_->qkv_gradient()) : MatrixIn{operands, k, m};
      const MatrixIn X = takes_context ? in(attention_->context()) : MatrixIn{operands, k, n};
      return algebra.product(compute_, 1, dY, Transpose::yes, X, Transpose::no, 0, result);
    }
  }
}

/// On the one stream that the communicator belongs to. It averages where Megatron-LM adds; nobody reads what it gives.
std::int64_t Layers::reduce(Collective& reduction) {
  compute_.record(*multiplied_);
  tp_.wait(*multiplied_);
  reduction.start(tp_);
  tp_.record(*reduced_);
  compute_.wait(*reduced_);
  return reduction.bytes_sent();
}

}  // namespace canzona::optimized
