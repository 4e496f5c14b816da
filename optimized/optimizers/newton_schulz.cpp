#include "optimized/optimizers/newton_schulz.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optimized/optimizers/elementwise.hpp"

namespace canzona::optimized {
namespace {

using reference::Coefficients;

/// Steps of one segment of the Gram form.
constexpr std::size_t kSegment = 3;

/// A[i][i] ← A[i][i] + value for each matrix of a stack; i counts the rows of all.
struct AddToDiagonals {
  float value;
  std::int64_t side;
  float* matrices;
  CANZONA_KERNEL void operator()(std::int64_t i) { matrices[i * side + i % side] += value; }
};

}  // namespace

std::vector<std::string> newton_schulz_variants() { return {"symmetric", "dense", "gram"}; }

double newton_schulz_flops(const std::string& variant, Shape shape, std::int64_t steps) {
  const auto m = static_cast<double>(shape.shorter());
  const auto n = static_cast<double>(shape.longer());
  const auto k = static_cast<double>(steps);
  const double triangle = m * (m + 1);  // FLOPs per unit of inner length
  if (variant == "dense") return k * (2 * m * m * n + 2 * m * m * m + 2 * m * m * n);
  if (variant == "symmetric") return k * (triangle * n + triangle * m + 2 * m * m * n);
  const double segments = std::ceil(k / static_cast<double>(kSegment));
  // G and QX of each segment; G² of each step; PQ and the two products of PGP of all steps but one of a segment.
  return segments * (triangle * n + 2 * m * m * n) + k * triangle * m + 3 * (k - segments) * triangle * m;
}

NewtonSchulz::NewtonSchulz(Device& device, Workspace& workspace, std::size_t first_slot, Shape shape,
                           std::int64_t count, std::vector<Coefficients> coefficients, const std::string& variant)
    : algebra_(device.linear_algebra()),
      workspace_(workspace),
      first_slot_(first_slot),
      shape_(shape),
      count_(count),
      coefficients_(std::move(coefficients)),
      variant_(variant == "gram"    ? Variant::gram
               : variant == "dense" ? Variant::dense
                                    : Variant::symmetric) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(float));
  workspace_.reserve(first_slot_ + kNext, count_ * shape_.numel() * kBytes);
  const std::size_t squares = variant_ == Variant::gram ? kSpare : kPolynomial;
  for (std::size_t slot = kGram; slot <= squares; ++slot)
    workspace_.reserve(first_slot_ + slot, count_ * shape_.shorter() * shape_.shorter() * kBytes);
}

MatrixOut NewtonSchulz::matrix(Slot slot, std::int64_t rows, std::int64_t cols) const {
  return {workspace_.slot<float>(first_slot_ + slot), rows, cols};
}

void NewtonSchulz::run(Stream& stream, DevicePointer<float> home) {
  MatrixOut X{home, shape_.rows, shape_.cols};
  MatrixOut next = matrix(kNext, shape_.rows, shape_.cols);
  if (variant_ == Variant::gram) {
    run_segments(stream, X, next);
  } else {
    run_steps(stream, X, next);
  }
  if (X.data.raw() != home.raw()) launch(stream, count_ * X.size(), Copy{X.data.raw(), home.raw()});
}

void NewtonSchulz::run_steps(Stream& stream, MatrixOut& X, MatrixOut& next) {
  const MatrixOut A = square(kGram);
  const MatrixOut P = square(kPolynomial);
  for (const Coefficients& step : coefficients_) {
    gram(stream, in(X), A);
    polynomial(stream, step, A, P);
    apply(stream, in(P), X, next);
  }
}

void NewtonSchulz::run_segments(Stream& stream, MatrixOut& X, MatrixOut& next) {
  for (std::size_t begin = 0; begin < coefficients_.size(); begin += kSegment) {
    gram(stream, in(X), square(kGram));
    const MatrixOut Q = accumulate(stream, begin, std::min(begin + kSegment, coefficients_.size()));
    apply(stream, in(Q), X, next);
  }
}

MatrixOut NewtonSchulz::accumulate(Stream& stream, std::size_t begin, std::size_t end) {
  const MatrixOut G = square(kGram);
  MatrixOut P = square(kPolynomial), Q = square(kFactor), R = square(kSpare);
  for (std::size_t step = begin; step < end; ++step) {
    // P = aI + bG + cG²;  Q ← PQ
    polynomial(stream, coefficients_[step], G, P);
    if (step > begin) {
      algebra_.commuting_products(stream, in(P), in(Q), R, count_);
      std::swap(Q, R);
    }
    if (step + 1 < end) {
      // G ← PGP
      algebra_.commuting_products(stream, in(G), in(P), R, count_);
      algebra_.commuting_products(stream, in(R), in(P), G, count_);
    }
    if (step == begin) std::swap(P, Q);
  }
  return Q;
}

void NewtonSchulz::gram(Stream& stream, MatrixIn X, MatrixOut G) {
  const Transpose first = is_tall() ? Transpose::yes : Transpose::no;
  if (variant_ != Variant::dense) return algebra_.symmetric_products(stream, 1, X, first, 0, G, count_);
  algebra_.products(stream, 1, X, first, X, is_tall() ? Transpose::no : Transpose::yes, 0, G, count_);
}

void NewtonSchulz::polynomial(Stream& stream, const Coefficients& step, MatrixOut A, MatrixOut P) {
  const auto [a, b, c] = step;
  const Quadratic coefficients{static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)};
  if (variant_ != Variant::dense) return algebra_.quadratics(stream, coefficients, in(A), P, count_);
  launch(stream, count_ * A.size(), Copy{A.data.raw(), P.data.raw()});
  algebra_.products(stream, coefficients.c, in(A), Transpose::no, in(A), Transpose::no, coefficients.b, P, count_);
  launch(stream, count_ * A.rows, AddToDiagonals{coefficients.a, A.rows, P.data.raw()});
}

void NewtonSchulz::apply(Stream& stream, MatrixIn P, MatrixOut& X, MatrixOut& next) {
  const MatrixIn left = is_tall() ? in(X) : P;
  const MatrixIn right = is_tall() ? P : in(X);
  algebra_.products(stream, 1, left, Transpose::no, right, Transpose::no, 0, next, count_);
  std::swap(X.data, next.data);
}

double newton_schulz_amplification(const Options& options, const std::string& variant) {
  const std::vector<Coefficients> steps =
      reference::newton_schulz_coefficients(options.text("coefficients"), options.integer("ns_steps"));
  double all = 1, before = 1, largest = 0;  // of all steps; of those before in the segment; |bⱼ|∏ aᵢ/aⱼ
  for (std::size_t j = 0; j < steps.size(); ++j) {
    const auto& [a, b, c] = steps[j];
    if (j % kSegment == 0) before = 1;
    if (j % kSegment > 0) largest = std::max(largest, std::abs(b) * before / std::abs(a));
    before *= std::abs(a);
    all *= std::abs(a);
  }
  return variant == "gram" ? all * (1 + largest) : all;
}

}  // namespace canzona::optimized
