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

/// X ← X/(‖X‖ + eps) or X/max(‖X‖, eps); zero stays zero.
struct Normalize {
  const double* squares;
  double eps;
  bool adds;
  float* values;

  void operator()(std::int64_t i) {
    const double norm = std::sqrt(*squares);
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

Muon::Muon(const Options& options, Device& device, Workspace& workspace, Shape shape)
    : device_(device),
      workspace_(workspace),
      mu_(static_cast<float>(options.number("momentum"))),
      weight_(static_cast<float>(options.is("momentum_form", "ema") ? 1 - options.number("momentum") : 1)),
      nesterov_(options.is("nesterov", "on")),
      coefficients_(reference::newton_schulz_coefficients(options.text("coefficients"), options.integer("ns_steps"))),
      eps_(options.number("eps")),
      adds_eps_(options.is("eps_form", "add")),
      scale_(static_cast<float>(reference::muon_scale(options.text("scale"), shape))),
      momentum_(device.allocate_elements<float>(shape.numel())) {
  const std::int64_t bytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t side = shape.shorter();
  workspace.reserve(kX, shape.numel() * bytes);
  workspace.reserve(kNext, shape.numel() * bytes);
  workspace.reserve(kA, side * side * bytes);
  workspace.reserve(kB, side * side * bytes);
  workspace.reserve(kSquares, static_cast<std::int64_t>(sizeof(double)));
}

void Muon::step(Stream& stream, float factor, MatrixIn gradient, MatrixOut update) {
  scale(stream, in(orthogonalized(stream, factor, gradient)), update);
}

MatrixOut Muon::orthogonalized(Stream& stream, float factor, MatrixIn gradient) {
  LinearAlgebra& algebra = device_.linear_algebra();
  const std::int64_t side = std::min(gradient.rows, gradient.cols);
  MatrixOut X{workspace_.slot<float>(kX), gradient.rows, gradient.cols};
  MatrixOut next{workspace_.slot<float>(kNext), gradient.rows, gradient.cols};
  const MatrixOut A{workspace_.slot<float>(kA), side, side};
  const MatrixOut B{workspace_.slot<float>(kB), side, side};
  const DevicePointer<double> squares = workspace_.slot<double>(kSquares);

  launch(stream, X.size(),
         Momentum{mu_, weight_, factor, nesterov_, gradient.data.raw(), momentum_.as<float>().raw(), X.data.raw()});
  launch_sums(stream, 1, X.size(), squares, Square{X.data.raw()});
  launch(stream, X.size(), Normalize{squares.raw(), eps_, adds_eps_, X.data.raw()});
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
  return X;
}

void Muon::scale(Stream& stream, MatrixIn matrix, MatrixOut update) const {
  launch(stream, update.size(), Scale{scale_, matrix.data.raw(), update.data.raw()});
}

namespace {

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "muon",
    .order = 0,
    .prepare = [](const Options& options, Device& device, Workspace& workspace,
                  Shape shape) { return std::make_unique<Muon>(options, device, workspace, shape); },
}};

}  // namespace
}  // namespace canzona::optimized
