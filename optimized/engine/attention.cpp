#include "optimized/engine/attention.hpp"

#include <cmath>
#include <limits>

#include "optimized/device/launch.hpp"

namespace canzona::optimized {
namespace {

/// Heads [first, first + heads) of the `pitch` that each group has in a token's row.
struct HeadPlaces {
  std::int64_t sequence;
  std::int64_t groups;
  std::int64_t pitch;
  std::int64_t first;
  std::int64_t heads;

  /// The place among all heads of all tokens of a row of their stack.
  CANZONA_KERNEL std::int64_t operator()(std::int64_t row) const {
    const std::int64_t head = row / sequence % (groups * heads);
    const std::int64_t token = row / sequence / (groups * heads) * sequence + row % sequence;
    return (token * groups + head / heads) * pitch + first + head % heads;
  }
};

struct StackHeads {
  HeadPlaces place;
  std::int64_t dim;
  const float* activations;
  float* stack;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    stack[i] = activations[(place(row) - row) * dim + i];
  }
};

struct UnstackHeads {
  HeadPlaces place;
  std::int64_t dim;
  const float* stack;
  float* activations;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    activations[(place(row) - row) * dim + i] = stack[i];
  }
};

/// Whether a row's token sees that of element i.
CANZONA_KERNEL bool sees(std::int64_t row, std::int64_t i, std::int64_t sequence) {
  return i - row * sequence <= row % sequence;
}

struct SeenScore {
  std::int64_t sequence;
  const float* scores;
  CANZONA_KERNEL double operator()(std::int64_t row, std::int64_t i) const {
    return sees(row, i, sequence) ? static_cast<double>(scores[i]) : -std::numeric_limits<double>::infinity();
  }
};

/// s ← e^(s − largest), and that to be added up.
struct Exponential {
  std::int64_t sequence;
  const double* largest;
  float* scores;
  CANZONA_KERNEL double operator()(std::int64_t row, std::int64_t i) const {
    const float value = sees(row, i, sequence) ? std::exp(scores[i] - static_cast<float>(largest[row])) : 0.0f;
    scores[i] = value;
    return static_cast<double>(value);
  }
};

struct DivideRow {
  const double* sums;
  float* values;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) { values[i] /= static_cast<float>(sums[row]); }
};

/// P∘dP, to be added up.
struct WeightedGradient {
  const float* P;
  const float* dP;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    return static_cast<double>(P[i]) * static_cast<double>(dP[i]);
  }
};

/// dS = P∘(dP − Σ P∘dP), in the place of dP.
struct ScoreGradient {
  const float* P;
  const double* sums;
  float* dP;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    dP[i] = P[i] * (dP[i] - static_cast<float>(sums[row]));
  }
};

/// Which heads of a group's row: all queries, the key, the value; and of the context all queries.
HeadPlaces queries_of(const AttentionShape& own) { return {own.sequence, own.groups, own.queries + 2, 0, own.queries}; }
HeadPlaces keys_of(const AttentionShape& own) { return {own.sequence, own.groups, own.queries + 2, own.queries, 1}; }
HeadPlaces values_of(const AttentionShape& own) {
  return {own.sequence, own.groups, own.queries + 2, own.queries + 1, 1};
}
HeadPlaces contexts_of(const AttentionShape& own) { return {own.sequence, own.groups, own.queries, 0, own.queries}; }

void stack(Stream& stream, const AttentionShape& shape, const HeadPlaces& place, const Buffer& activations,
           const Buffer& heads) {
  launch_rows(stream, shape.tokens() * place.groups * place.heads, shape.dim,
              StackHeads{place, shape.dim, activations.as<float>().raw(), heads.as<float>().raw()});
}

void unstack(Stream& stream, const AttentionShape& shape, const HeadPlaces& place, const Buffer& heads,
             const Buffer& activations) {
  launch_rows(stream, shape.tokens() * place.groups * place.heads, shape.dim,
              UnstackHeads{place, shape.dim, heads.as<float>().raw(), activations.as<float>().raw()});
}

}  // namespace

void softmax(Stream& stream, const AttentionShape& shape, DevicePointer<float> scores, DevicePointer<double> largest,
             DevicePointer<double> sums) {
  const std::int64_t rows = shape.heads() * shape.tokens(), cols = shape.sequence;
  launch_maxima(stream, rows, cols, largest, SeenScore{cols, scores.raw()});
  launch_sums(stream, rows, cols, sums, Exponential{cols, largest.raw(), scores.raw()});
  launch_rows(stream, rows, cols, DivideRow{sums.raw(), scores.raw()});
}

Attention::Attention(Device& device, const AttentionShape& shape) : device_(device), shape_(shape) {
  const std::int64_t query = shape.tokens() * shape.context_cols(), key = query / shape.queries;
  for (Buffer* buffer : {&qkv_, &qkv_gradient_})
    *buffer = device.allocate_elements<float>(shape.tokens() * shape.qkv_cols());
  for (Buffer* buffer : {&context_, &context_gradient_, &Q_, &O_, &dQ_, &dO_})
    *buffer = device.allocate_elements<float>(query);
  for (Buffer* buffer : {&K_, &V_, &dK_, &dV_}) *buffer = device.allocate_elements<float>(key);
  for (Buffer* buffer : {&P_, &dP_}) *buffer = device.allocate_elements<float>(shape.scores());
  for (Buffer* buffer : {&largest_, &sums_}) *buffer = device.allocate_elements<double>(shape.heads() * shape.tokens());
}

void Attention::multiply(Stream& stream, const Product& own, float alpha, const Buffer& A, const Buffer& B,
                         const Buffer& C) {
  const auto operand = [](const Buffer& buffer, std::int64_t rows, std::int64_t cols, bool is_transposed) {
    return MatrixIn{buffer.as<const float>(), is_transposed ? cols : rows, is_transposed ? rows : cols};
  };
  const auto transpose = [](bool is_transposed) { return is_transposed ? Transpose::yes : Transpose::no; };
  device_.linear_algebra().products(stream, alpha, operand(A, own.m, own.k, own.transposes_a),
                                    transpose(own.transposes_a), operand(B, own.k, own.n, own.transposes_b),
                                    transpose(own.transposes_b), 0, {C.as<float>(), own.m, own.n}, own.count);
}

/// S = Q·Kᵀ/√dim, P = softmax(S)
void Attention::make_probabilities(Stream& stream) {
  multiply(stream, shape_.score_products(), 1 / std::sqrt(static_cast<float>(shape_.dim)), Q_, K_, P_);
  softmax(stream, shape_, P_.as<float>(), largest_.as<double>(), sums_.as<double>());
}

void Attention::forward(Stream& stream) {
  stack(stream, shape_, queries_of(shape_), qkv_, Q_);
  stack(stream, shape_, keys_of(shape_), qkv_, K_);
  stack(stream, shape_, values_of(shape_), qkv_, V_);
  make_probabilities(stream);
  multiply(stream, shape_.context_products(), 1, P_, V_, O_);  // O = P·V
  unstack(stream, shape_, contexts_of(shape_), O_, context_);
}

void Attention::backward(Stream& stream) {
  const float scale = 1 / std::sqrt(static_cast<float>(shape_.dim));
  stack(stream, shape_, contexts_of(shape_), context_gradient_, dO_);
  make_probabilities(stream);
  multiply(stream, shape_.value_gradients(), 1, P_, dO_, dV_);        // dV = Pᵀ·dO
  multiply(stream, shape_.probability_gradients(), 1, dO_, V_, dP_);  // dP = dO·Vᵀ
  const std::int64_t rows = shape_.heads() * shape_.tokens(), cols = shape_.sequence;
  const float* P = P_.as<float>().raw();
  float* dP = dP_.as<float>().raw();
  launch_sums(stream, rows, cols, sums_.as<double>(), WeightedGradient{P, dP});
  launch_rows(stream, rows, cols, ScoreGradient{P, sums_.as<double>().raw(), dP});
  multiply(stream, shape_.query_gradients(), scale, dP_, K_, dQ_);  // dQ = dS·K/√dim
  multiply(stream, shape_.key_gradients(), scale, dP_, Q_, dK_);    // dK = dSᵀ·Q/√dim
  unstack(stream, shape_, queries_of(shape_), dQ_, qkv_gradient_);
  unstack(stream, shape_, keys_of(shape_), dK_, qkv_gradient_);
  unstack(stream, shape_, values_of(shape_), dV_, qkv_gradient_);
}

}  // namespace canzona::optimized
