// Newton–Schulz orthogonalization on a device. Must equal reference/optimizers/newton_schulz.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/newton_schulz.hpp"

namespace canzona::optimized {

/// Ways to compute the same polynomial, the usual one first:
/// symmetric: A = XXᵀ, Z = bA + cA², X ← aX + ZX, of the first two products one triangle only;
/// dense: the same by plain products;
/// gram: X is touched only where a segment begins and ends, in between there is G = XXᵀ alone (Dao-AILab/
///       gram-newton-schulz): with P = aI + Z and Z = bG + cG², Q ← PQ, G ← PGP; X ← QX. Rounding can make eigenvalues
///       of G negative, which then grow by ∏a², so a segment has three steps at most.
std::vector<std::string> newton_schulz_variants();

/// FLOPs that a variant executes on one matrix; a triangle counts half.
double newton_schulz_flops(const std::string& variant, Shape shape, std::int64_t steps);

/// Runs the polynomial on a stack of matrices of one shape, all together. A tall X is not transposed: the Gram matrix
/// of its shorter side is XᵀX, and factors stand on its right.
class NewtonSchulz {
 public:
  /// Uses kSlots slots of the workspace from `first_slot` on. X and all products of it are kept in `arithmetic`.
  NewtonSchulz(Device& device, Workspace& workspace, std::size_t first_slot, Shape shape, std::int64_t count,
               std::vector<reference::Coefficients> coefficients, const std::string& variant,
               DType arithmetic = DType::fp32);

  static constexpr std::size_t kSlots = 6;

  /// X, normalized before, becomes its orthogonalization in place; asynchronous, takes no memory.
  void run(Stream& stream, DevicePointer<float> X);

 private:
  enum class Variant { symmetric, dense, gram };
  enum Slot : std::size_t { kNext, kGram, kPolynomial, kFactor, kSpare, kConverted };

  template <class T>
  void orthogonalize(Stream& stream, DevicePointer<T> home);
  template <class T>
  void run_steps(Stream& stream, MatrixView<T>& X, MatrixView<T>& next);
  template <class T>
  void run_segments(Stream& stream, MatrixView<T>& X, MatrixView<T>& next);
  /// Q = P_k…P_1 of steps [begin, end); G is lost.
  template <class T>
  MatrixView<T> accumulate(Stream& stream, std::size_t begin, std::size_t end);
  template <class T>
  void gram(Stream& stream, MatrixView<const T> X, MatrixView<T> G);
  /// Z = bA + cA²
  template <class T>
  void quadratic(Stream& stream, const reference::Coefficients& step, MatrixView<T> A, MatrixView<T> Z);
  /// X ← aX + ZX, by way of `next`
  template <class T>
  void apply(Stream& stream, double a, MatrixView<const T> Z, MatrixView<T>& X, MatrixView<T>& next);

  template <class T>
  MatrixProducts<T>& products() {
    return algebra_.in<T>();
  }
  template <class T>
  MatrixView<T> matrix(Slot slot, std::int64_t rows, std::int64_t cols) const {
    return {workspace_.slot<T>(first_slot_ + slot), rows, cols};
  }
  template <class T>
  MatrixView<T> square(Slot slot) const {
    return matrix<T>(slot, shape_.shorter(), shape_.shorter());
  }
  bool is_tall() const { return shape_.rows > shape_.cols; }

  LinearAlgebra& algebra_;
  Workspace& workspace_;
  std::size_t first_slot_;
  Shape shape_;
  std::int64_t count_;
  std::vector<reference::Coefficients> coefficients_;
  Variant variant_;
  DType arithmetic_;
};

/// ∏ aᵢ: directions near zero grow by that, and so does rounding in them. In the Gram form an error ε of G has become
/// (∏ aᵢ)²ε in step j of a segment, over the steps before it there, where Pⱼ turns it into |bⱼ|(∏ aᵢ)²ε of X: that is
/// |bⱼ|∏ aᵢ/aⱼ of what all steps make of ε, and the largest of a run is added. Unknown where momentum is rounded.
std::optional<double> newton_schulz_amplification(const Options& options, const std::string& variant);

/// The engine rounds XXᵀ, Z and X in a step, the reference XXᵀ, its square, the two terms of Z and their sum, ZX, aX
/// and X; both round what they begin with and the update.
std::int64_t newton_schulz_roundings(const Options& options);

}  // namespace canzona::optimized
