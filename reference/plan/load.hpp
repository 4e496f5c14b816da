// How a plan loads its ranks: matrix-optimizer FLOPs, elements owned, bytes held.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/core/dtype.hpp"
#include "reference/plan/cost.hpp"
#include "reference/plan/plan.hpp"

namespace canzona {

/// Matrix-optimizer FLOPs of one step, refreshes counted by the steps that share them. Elementwise work weighs nothing
/// here.
struct Loads {
  std::vector<double> dp;   ///< per DP rank: the matrices that it updates, each counted once
  std::vector<double> gpu;  ///< per rank (TP innermost): what that GPU computes, redundancy included
  double total = 0;         ///< every parameter once, as one matrix whatever its blocks
  double largest = 0;       ///< the largest parameter

  double busiest_gpu() const;
  /// Busiest DP rank ÷ mean DP rank; 1 when there is no matrix.
  double dp_balance() const;
  /// Busiest GPU ÷ (total ÷ GPUs): the same denominator for every strategy; 1 when there is no matrix.
  double gpu_balance() const;
  /// What gpu_balance cannot go below while one parameter stays on one GPU: max(1, largest ÷ (total ÷ GPUs)).
  double gpu_bound() const;
};

Loads loads_of(const Plan& plan, const Model& model, const Cost& cost);

/// Elements of the gradient buffer that each DP rank owns, padding included.
std::vector<std::int64_t> shard_elements(const Plan& plan, const GradientBuffer& buffer);

/// Bytes that the optimizer takes on each rank.
struct StateMemory {
  std::vector<std::int64_t> master_weights;  ///< fp32, of owned elements
  /// Matrix state on every rank that computes, AdamW moments of owned elements.
  std::vector<std::int64_t> optimizer_state;
  /// Whole gradients in flight during the step: the largest micro-group that the rank hosts, or two in a row where
  /// groups are pipelined. The capacity bounds it.
  std::vector<std::int64_t> gathered_matrices;
};

StateMemory state_memory(const Plan& plan, const Model& model, const GradientBuffer& buffer, const Cost& cost,
                         DType gradient);

}  // namespace canzona
