// Newton–Schulz orthogonalization on a device. Must equal reference/optimizers/newton_schulz.cpp.
#pragma once

#include <string>
#include <vector>

#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/newton_schulz.hpp"

namespace canzona::optimized {

/// Ways to compute the same polynomial, the usual one first:
/// symmetric: A = XXᵀ, P = aI + bA + cA², X ← PX, of the first two products one triangle only;
/// dense: the same by plain products;
/// gram: X is touched only where a segment begins and ends, in between there is G = XXᵀ alone (Dao-AILab/
///       gram-newton-schulz): P = aI + bG + cG², Q ← PQ, G ← PGP; X ← QX. Rounding can make eigenvalues of G
///       negative, which then grow by ∏a², so a segment has three steps at most.
std::vector<std::string> newton_schulz_variants();

/// FLOPs that a variant executes on one matrix; a triangle counts half.
double newton_schulz_flops(const std::string& variant, Shape shape, std::int64_t steps);

/// Runs the polynomial on a stack of matrices of one shape, all together. A tall X is not transposed: the Gram matrix
/// of its shorter side is XᵀX, and factors stand on its right.
class NewtonSchulz {
 public:
  /// Uses kSlots slots of the workspace from `first_slot` on.
  NewtonSchulz(Device& device, Workspace& workspace, std::size_t first_slot, Shape shape, std::int64_t count,
               std::vector<reference::Coefficients> coefficients, const std::string& variant);

  static constexpr std::size_t kSlots = 5;

  /// X, normalized before, becomes its orthogonalization in place; asynchronous, takes no memory.
  void run(Stream& stream, DevicePointer<float> X);

 private:
  enum class Variant { symmetric, dense, gram };
  enum Slot : std::size_t { kNext, kGram, kPolynomial, kFactor, kSpare };

  void run_steps(Stream& stream, MatrixOut& X, MatrixOut& next);
  void run_segments(Stream& stream, MatrixOut& X, MatrixOut& next);
  /// Q = P_k…P_1 of steps [begin, end); G is lost.
  MatrixOut accumulate(Stream& stream, std::size_t begin, std::size_t end);
  void gram(Stream& stream, MatrixIn X, MatrixOut G);
  void polynomial(Stream& stream, const reference::Coefficients& step, MatrixOut A, MatrixOut P);
  /// X ← PX, by way of `next`
  void apply(Stream& stream, MatrixIn P, MatrixOut& X, MatrixOut& next);

  MatrixOut matrix(Slot slot, std::int64_t rows, std::int64_t cols) const;
  MatrixOut square(Slot slot) const { return matrix(slot, shape_.shorter(), shape_.shorter()); }
  bool is_tall() const { return shape_.rows > shape_.cols; }

  LinearAlgebra& algebra_;
  Workspace& workspace_;
  std::size_t first_slot_;
  Shape shape_;
  std::int64_t count_;
  std::vector<reference::Coefficients> coefficients_;
  Variant variant_;
};

/// ∏ aᵢ: directions near zero grow by that, and so does rounding in them. In the Gram form an error ε of G has become
/// (∏ aᵢ)²ε in step j of a segment, over the steps before it there, where Pⱼ turns it into |bⱼ|(∏ aᵢ)²ε of X: that is
/// |bⱼ|∏ aᵢ/aⱼ of what all steps make of ε, and the largest of a run is added.
double newton_schulz_amplification(const Options& options, const std::string& variant);

}  // namespace canzona::optimized
