#include "optimized/optimizers/muon.hpp"

#include <algorithm>
#include <cmath>

namespace canzona::optimized {
namespace {

/// Slots of the workspace: X and what it becomes, A = XXᵀ, B = aI + bA + cA², ‖U‖².
enum Slot : std::size_t { kX, kNext, kA, kB, kSquares };

/// M ← μM + w·f·G; U = μM + w·f·G with Nesterov, M without.
struct Momentum {
  float mu;
  float weight;
  float factor;
  bool nesterov;
  const float* gradient;
  float* momentum;
  float* direction;

  void operator()(std::int64_t i) {
    const float g = weight * (factor * gradient[i]);
    const float m = mu * momentum[i] + g;
    momentum[i] = m;
    direction[i] = nesterov ? mu * m + g : m;
  }
};

struct Square {
  const float* values;
  double operator()(std::int64_t i) const { return static_cast<double>(values[i]) * static_cast<double>(values[i]); }
};

/// X ← X/(‖X‖ + eps) or X/max(‖X‖, eps), for each matrix of a stack; zero stays zero.
struct Normalize {
  const double* squares;  // by matrix
  std::int64_t numel;     // of one matrix
  double eps;
  bool adds;
  float* values;

  void operator()(std::int64_t i) {
    const double norm = std::sqrt(squares[i / numel]);
    const double divisor = adds ? norm + eps : std::max(norm, eps);
    values[i] = norm == 0 ? 0.0f : static_cast<float>(static_cast<double>(values[i]) / divisor);
  }
};

/// B ← A with `value` more on the diagonal: B[i][i] only, so i counts rows.
struct AddToDiagonal {
  float value;
  std::int64_t cols;
  float* matrix;
  void operator()(std::int64_t i) { matrix[i * cols + i] += value; }
};

struct Copy {
  const float* from;
  float* to;
  void operator()(std::int64_t i) { to[i] = from[i]; }
};

struct Scale {
  float scale;
  const float* from;
  float* to;
  void operator()(std::int64_t i) { to[i] = scale * from[i]; }
};

}  // namespace

Muon::Muon(const Preparation& own)
    : device_(own.device),
      workspace_(own.workspace),
      shape_(own.shape),
      count_(own.count()),
      mu_(static_cast<float>(own.options.number("momentum"))),
      weight_(static_cast<float>(own.options.is("momentum_form", "ema") ? 1 - own.options.number("momentum") : 1)),
      nesterov_(own.options.is("nesterov", "on")),
      coefficients_(
          reference::newton_schulz_coefficients(own.options.text("coefficients"), own.options.integer("ns_steps"))),
      eps_(own.options.number("eps")),
      adds_eps_(own.options.is("eps_form", "add")),
      scale_(static_cast<float>(reference::muon_scale(own.options.text("scale"), shape_))),
      momentum_(device_.allocate_elements<float>(count_ * shape_.numel())) {
  const std::int64_t bytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t side = shape_.shorter();
  workspace_.reserve(kX, count_ * shape_.numel() * bytes);
  workspace_.reserve(kNext, shape_.numel() * bytes);
  workspace_.reserve(kA, side * side * bytes);
  workspace_.reserve(kB, side * side * bytes);
  workspace_.reserve(kSquares, count_ * static_cast<std::int64_t>(sizeof(double)));
}

void Muon::step(Stream& stream, float factor, DevicePointer<const float> gradient, DevicePointer<float> update) {
  scale(stream, orthogonalized(stream, factor, gradient), update);
}

DevicePointer<float> Muon::orthogonalized(Stream& stream, float factor, DevicePointer<const float> gradient) {
  const DevicePointer<float> X = workspace_.slot<float>(kX);
  const DevicePointer<double> squares = workspace_.slot<double>(kSquares);
  const std::int64_t numel = shape_.numel();
  launch(stream, count_ * numel,
         Momentum{mu_, weight_, factor, nesterov_, gradient.raw(), momentum_.as<float>().raw(), X.raw()});
  launch_sums(stream, count_, numel, squares, Square{X.raw()});
  launch(stream, count_ * numel, Normalize{squares.raw(), numel, eps_, adds_eps_, X.raw()});
  for (std::int64_t index = 0; index < count_; ++index) newton_schulz(stream, index);
  return X;
}

/// In place, by way of kNext.
void Muon::newton_schulz(Stream& stream, std::int64_t index) {
  LinearAlgebra& algebra = device_.linear_algebra();
  const std::int64_t side = shape_.shorter();
  MatrixOut X{workspace_.slot<float>(kX) + index * shape_.numel(), shape_.rows, shape_.cols};
  const DevicePointer<float> home = X.data;
  MatrixOut next{workspace_.slot<float>(kNext), shape_.rows, shape_.cols};
  const MatrixOut A{workspace_.slot<float>(kA), side, side};
  const MatrixOut B{workspace_.slot<float>(kB), side, side};
  // A tall X is not transposed: the Gram matrix of its shorter side is XᵀX, and P stands on the right.
  const bool tall = X.rows > X.cols;
  for (const auto& [a, b, c] : coefficients_) {
    // A = XXᵀ;  P = aI + bA + cA²;  X ← PX
    algebra.symmetric_product(stream, 1, in(X), tall ? Transpose::yes : Transpose::no, 0, A);
    launch(stream, A.size(), Copy{A.data.raw(), B.data.raw()});
    algebra.symmetric_product(stream, static_cast<float>(c), in(A), Transpose::no, static_cast<float>(b), B);
    launch(stream, side, AddToDiagonal{static_cast<float>(a), side, B.data.raw()});
    if (tall) {
      algebra.product(stream, 1, in(X), Transpose::no, in(B), Transpose::no, 0, next);
    } else {
      algebra.product(stream, 1, in(B), Transpose::no, in(X), Transpose::no, 0, next);
    }
    std::swap(X.data, next.data);
  }
  if (X.data.raw() != home.raw()) launch(stream, X.size(), Copy{X.data.raw(), home.raw()});
}

void Muon::scale(Stream& stream, DevicePointer<const float> stack, DevicePointer<float> update) const {
  launch(stream, count_ * shape_.numel(), Scale{scale_, stack.raw(), update.raw()});
}

double newton_schulz_amplification(const Options& options) {
  double product = 1;
  for (const auto& [a, b, c] :
       reference::newton_schulz_coefficients(options.text("coefficients"), options.integer("ns_steps")))
    product *= std::abs(a);
  return product;
}

namespace {

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "muon",
    .order = 0,
    .prepare = [](const Preparation& own) { return std::make_unique<Muon>(own); },
    .amplification = newton_schulz_amplification,
}};

}  // namespace
}  // namespace canzona::optimized
