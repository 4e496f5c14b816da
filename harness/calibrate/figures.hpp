// What a calibration measures of a workload: its products, factorizations and sizes of collectives.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "optimized/engine/layers.hpp"
#include "reference/model/layer_work.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// Products whose operands have just been written, as those of updates and of attention: A·B, A·Bᵀ, Aᵀ·B, A·Aᵀ; and
/// with weights that nobody has touched for an iteration: X·Wᵀ forward and dY·W backward.
enum class ProductKind { plain, right_transposed, left_transposed, symmetric, forward, input_gradient };
/// So many of m × n by k, of operands of a type.
struct ProductKey {
  ProductKind kind = ProductKind::plain;
  DType type = DType::fp32;
  std::int64_t m = 0, n = 0, k = 0, count = 1;

  auto operator<=>(const ProductKey&) const = default;
};

using FactorizationKey = std::pair<Factorization::Kind, std::int64_t>;

/// What every rank does in forward and backward.
std::vector<LayerOperation> operations_of(const Workload& workload, const optimized::Tokens& tokens);

/// Those of every update and refresh, and of forward and backward; what has two bytes in the cost of an optimizer, and
/// all of forward and backward, is of `type`.
std::set<ProductKey> products_of(const Workload& workload, const optimized::Tokens& tokens, DType type);

/// Those of every refresh.
std::set<FactorizationKey> factorizations_of(const Workload& workload);

/// Bytes at which collectives are measured: from one agreement up to the largest bucket or the activations.
std::vector<std::int64_t> collective_sizes(const Workload& workload, const optimized::Tokens& tokens);

}  // namespace canzona::harness
