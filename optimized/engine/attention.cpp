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

template <class T>
struct StackHeads {
  HeadPlaces place;
  std::int64_t dim;
  const T* activations;
  T* stack;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    stack[i] = activations[(place(row) - row) * dim + i];
  }
};

template <class T>
struct UnstackHeads {
  HeadPlaces place;
  std::int64_t dim;
  const T* stack;
  T* activations;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    activations[(place(row) - row) * dim + i] = stack[i];
  }
};

/// Whether a row's token sees that of element i.
CANZONA_KERNEL bool sees(std::int64_t row, std::int64_t i, std::int64_t sequence) {
  return i - row * sequence <= row % sequence;
}

template <class T>
struct SeenScore {
  std::int64_t sequence;
  const T* scores;
  CANZONA_KERNEL double operator()(std::int64_t row, std::int64_t i) const {
    return sees(row, i, sequence) ? static_cast<double>(static_cast<float>(scores[i]))
                                  : -std::numeric_limits<double>::infinity();
  }
};

/// s ← e^(s − largest), and that to be added up.
template <class T>
struct Exponential {
  std::int64_t sequence;
  const double* largest;
  T* scores;
  CANZONA_KERNEL double operator()(std::int64_t row, std::int64_t i) const {
    const float distance = static_cast<float>(scores[i]) - static_cast<float>(largest[row]);
    const float value = sees(row, i, sequence) ? std::exp(distance) : 0.0f;
    scores[i] = static_cast<T>(value);
    return static_cast<double>(value);
  }
};

template <class T>
struct DivideRow {
  const double* sums;
  T* values;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    values[i] = static_cast<T>(static_cast<float>(values[i]) / static_cast<float>(sums[row]));
  }
};

/// P∘dP, to be added up.
template <class T>
struct WeightedGradient {
  const T* P;
  const T* dP;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    return static_cast<double>(static_cast<float>(P[i])) * static_cast<double>(static_cast<float>(dP[i]));
  }
};

/// dS = P∘(dP − Σ P∘dP), in the place of dP.
template <class T>
struct ScoreGradient {
  const T* P;
  const double* sums;
  T* dP;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    const float own = static_cast<float>(dP[i]) - static_cast<float>(sums[row]);
    dP[i] = static_cast<T>(static_cast<float>(P[i]) * own);
  }
};

/// Which heads of a group's row: all queries, the key, the value; and of the context all queries.
HeadPlaces queries_of(const AttentionShape& own) { return {own.sequence, own.groups, own.queries + 2, 0, own.queries}; }
HeadPlaces keys_of(const AttentionShape& own) { return {own.sequence, own.groups, own.queries + 2, own.queries, 1}; }
HeadPlaces values_of(const AttentionShape& own) {
  return {own.sequence, own.groups, own.queries + 2, own.queries + 1, 1};
}
HeadPlaces contexts_of(const AttentionShape& own) { return {own.sequence, own.groups, own.queries, 0, own.queries}; }

template <class T>
void stack(Stream& stream, const AttentionShape& shape, const HeadPlaces& place, const Buffer& activations,
           const Buffer& heads) {
  launch_rows(stream, shape.tokens() * place.groups * place.heads, shape.dim,
              StackHeads<T>{place, shape.dim, activations.as<T>().raw(), heads.as<T>().raw()});
}

template <class T>
void unstack(Stream& stream, const AttentionShape& shape, const HeadPlaces& place, const Buffer& heads,
             const Buffer& activations) {
  launch_rows(stream, shape.tokens() * place.groups * place.heads, shape.dim,
              UnstackHeads<T>{place, shape.dim, heads.as<T>().raw(), activations.as<T>().raw()});
}

}  // namespace

template <class T>
void softmax(Stream& stream, const AttentionShape& shape, DevicePointer<T> scores, DevicePointer<double> largest,
             DevicePointer<double> sums) {
  const std::int64_t rows = shape.heads() * shape.tokens(), cols = shape.sequence;
  launch_maxima(stream, rows, cols, largest, SeenScore<T>{cols, scores.raw()});
  launch_sums(stream, rows, cols, sums, Exponential<T>{cols, largest.raw(), scores.raw()});
  launch_rows(stream, rows, cols, DivideRow<T>{sums.raw(), scores.raw()});
}

template <class T>
Attention<T>::Attention(Device& device, const AttentionShape& shape) : device_(device), shape_(shape) {
  const std::int64_t query = shape.tokens() * shape.context_cols(), key = query / shape.queries;
  for (Buffer* buffer : {&qkv_, &qkv_gradient_})
    *buffer = device.allocate_elements<T>(shape.tokens() * shape.qkv_cols());
  for (Buffer* buffer : {&context_, &context_gradient_, &Q_, &O_, &dQ_, &dO_})
    *buffer = device.allocate_elements<T>(query);
  for (Buffer* buffer : {&K_, &V_, &dK_, &dV_}) *buffer = device.allocate_elements<T>(key);
  for (Buffer* buffer : {&P_, &dP_}) *buffer = device.allocate_elements<T>(shape.scores());
  for (Buffer* buffer : {&largest_, &sums_}) *buffer = device.allocate_elements<double>(shape.heads() * shape.tokens());
}

template <class T>
void Attention<T>::multiply(Stream& stream, const Product& own, float alpha, const Buffer& A, const Buffer& B,
                            const Buffer& C) {
  const auto operand = [](const Buffer& buffer, std::int64_t rows, std::int64_t cols, bool is_transposed) {
    return MatrixView<const T>{buffer.as<const T>(), is_transposed ? cols : rows, is_transposed ? rows : cols};
  };
  const auto transpose = [](bool is_transposed) { return is_transposed ? Transpose::yes : Transpose::no; };
  device_.linear_algebra().in<T>().products(stream, alpha, operand(A, own.m, own.k, own.transposes_a),
                                            transpose(own.transposes_a), operand(B, own.k, own.n, own.transposes_b),
                                            transpose(own.transposes_b), 0, {C.as<T>(), own.m, own.n}, own.count);
}

/// S = Q·Kᵀ/√dim, P = softmax(S)
template <class T>
void Attention<T>::make_probabilities(Stream& stream) {
  multiply(stream, shape_.score_products(), 1 / std::sqrt(static_cast<float>(shape_.dim)), Q_, K_, P_);
  softmax(stream, shape_, P_.as<T>(), largest_.as<double>(), sums_.as<double>());
}

template <class T>
void Attention<T>::forward(Stream& stream) {
  stack<T>(stream, shape_, queries_of(shape_), qkv_, Q_);
  stack<T>(stream, shape_, keys_of(shape_), qkv_, K_);
  stack<T>(stream, shape_, values_of(shape_), qkv_, V_);
  make_probabilities(stream);
  multiply(stream, shape_.context_products(), 1, P_, V_, O_);  // O = P·V
  unstack<T>(stream, shape_, contexts_of(shape_), O_, context_);
}

template <class T>
void Attention<T>::backward(Stream& stream) {
  const float scale = 1 / std::sqrt(static_cast<float>(shape_.dim));
  stack<T>(stream, shape_, contexts_of(shape_), context_gradient_, dO_);
  make_probabilities(stream);
  multiply(stream, shape_.value_gradients(), 1, P_, dO_, dV_);        // dV = Pᵀ·dO
  multiply(stream, shape_.probability_gradients(), 1, dO_, V_, dP_);  // dP = dO·Vᵀ
  const std::int64_t rows = shape_.heads() * shape_.tokens(), cols = shape_.sequence;
  const T* P = P_.as<T>().raw();
  T* dP = dP_.as<T>().raw();
  launch_sums(stream, rows, cols, sums_.as<double>(), WeightedGradient<T>{P, dP});
  launch_rows(stream, rows, cols, ScoreGradient<T>{P, sums_.as<double>().raw(), dP});
  multiply(stream, shape_.query_gradients(), scale, dP_, K_, dQ_);  // dQ = dS·K/√dim
  multiply(stream, shape_.key_gradients(), scale, dP_, Q_, dK_);    // dK = dSᵀ·Q/√dim
  unstack<T>(stream, shape_, queries_of(shape_), dQ_, qkv_gradient_);
  unstack<T>(stream, shape_, keys_of(shape_), dK_, qkv_gradient_);
  unstack<T>(stream, shape_, values_of(shape_), dV_, qkv_gradient_);
}

template void softmax(Stream&, const AttentionShape&, DevicePointer<float>, DevicePointer<double>,
                      DevicePointer<double>);
template void softmax(Stream&, const AttentionShape&, DevicePointer<Bf16>, DevicePointer<double>,
                      DevicePointer<double>);
template void softmax(Stream&, const AttentionShape&, DevicePointer<Fp16>, DevicePointer<double>,
                      DevicePointer<double>);
template class Attention<float>;
template class Attention<Bf16>;
template class Attention<Fp16>;

}  // namespace canzona::optimized
