#include "harness/calibrate/figures.hpp"

#include <algorithm>
#include <variant>

#include "reference/core/exact_sum.hpp"

namespace canzona::harness {
namespace {

void add_products(std::set<ProductKey>& keys, const MatrixCost& cost, DType type) {
  for (const MatrixProduct& own : cost.products) {
    const bool low = bytes_of(own.type) < bytes_of(DType::fp32);
    keys.insert({own.is_symmetric ? ProductKind::symmetric : ProductKind::plain, low ? type : DType::fp32, own.m, own.n,
                 own.k, 1});
  }
}

ProductKey key_of(const WeightProduct& own, DType type) {
  const Product& product = own.product;
  const ProductKind kind = own.kind == WeightProduct::Kind::forward          ? ProductKind::forward
                           : own.kind == WeightProduct::Kind::input_gradient ? ProductKind::input_gradient
                                                                             : ProductKind::left_transposed;
  return {kind, type, product.m, product.n, product.k, product.count};
}

ProductKey key_of(const Product& own, DType type) {
  const ProductKind kind = own.transposes_a   ? ProductKind::left_transposed
                           : own.transposes_b ? ProductKind::right_transposed
                                              : ProductKind::plain;
  return {kind, type, own.m, own.n, own.k, own.count};
}

}  // namespace

std::vector<LayerOperation> operations_of(const Workload& workload, const optimized::Tokens& tokens) {
  std::vector<LayerOperation> operations;
  for (int layer = 0; layer <= workload.model.layers + 1; ++layer) {
    const LayerWork work = layer_work(workload.model, layer, workload.mesh.tp, tokens.count, tokens.sequence);
    operations.insert(operations.end(), work.forward.begin(), work.forward.end());
    operations.insert(operations.end(), work.backward.begin(), work.backward.end());
  }
  return operations;
}

std::set<ProductKey> products_of(const Workload& workload, const optimized::Tokens& tokens, DType type) {
  std::set<ProductKey> keys;
  for (const Parameter& parameter : workload.model.parameters) {
    add_products(keys, workload.cost.of(parameter), type);
    add_products(keys, workload.cost.refresh_of(parameter), type);
  }
  for (const LayerOperation& operation : operations_of(workload, tokens)) {
    if (const auto* own = std::get_if<WeightProduct>(&operation)) keys.insert(key_of(*own, type));
    if (const auto* pass = std::get_if<AttentionPass>(&operation)) {
      for (const Product& product : pass->products()) keys.insert(key_of(product, type));
    }
  }
  return keys;
}

std::set<FactorizationKey> factorizations_of(const Workload& workload) {
  std::set<FactorizationKey> keys;
  for (const Parameter& parameter : workload.model.parameters) {
    for (const Factorization& own : workload.cost.refresh_of(parameter).factorizations) keys.insert({own.kind, own.n});
  }
  return keys;
}

std::vector<std::int64_t> collective_sizes(const Workload& workload, const optimized::Tokens& tokens) {
  std::int64_t largest = 0;
  for (const Bucket& bucket : workload.buffer.buckets) largest = std::max(largest, bucket.elements.size());
  for (const LayerOperation& operation : operations_of(workload, tokens)) {
    if (const auto* own = std::get_if<ReduceActivations>(&operation)) largest = std::max(largest, own->elements);
  }
  std::vector<std::int64_t> sizes{ExactSum::bytes()};
  constexpr std::int64_t kStep = 4;
  constexpr std::int64_t kFirst = 16384;
  std::int64_t size = kFirst;
  for (; size < largest * static_cast<std::int64_t>(sizeof(float)); size *= kStep) sizes.push_back(size);
  sizes.push_back(size);
  return sizes;
}

}  // namespace canzona::harness
