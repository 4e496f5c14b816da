// SOAP: Adam in the eigenbasis of Shampoo's factors. Everything is computed in the type of the master weights; only the
// update leaves in the type of the arithmetic.
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/optimizers/eigh.hpp"
#include "reference/optimizers/refresh.hpp"

namespace canzona::reference {
namespace {

template <class Scalar>
class Soap final : public Optimizer<Scalar> {
 public:
  Soap(const Options& options, DType arithmetic)
      : Optimizer<Scalar>(options),
        beta1_(options.number("beta1")),
        beta2_(options.number("beta2")),
        shampoo_beta_(options.number("shampoo_beta") < 0 ? beta2_ : options.number("shampoo_beta")),
        eps_(options.number("eps")),
        period_(refresh_period(options)),
        max_precond_dim_(options.integer("max_precond_dim")),
        normalize_(options.is("normalize_grads", "on")),
        correct_bias_(options.is("correct_bias", "on")),
        skips_first_(options.is("first_step", "skip")),
        arithmetic_(arithmetic) {}

  State<Scalar> init(Shape shape) const override {
    State<Scalar> state;
    state.tensors["exp_avg"] = Matrix<Scalar>::Zero(shape.rows, shape.cols);     // in the original space
    state.tensors["exp_avg_sq"] = Matrix<Scalar>::Zero(shape.rows, shape.cols);  // in the eigenbasis
    for (const Side& side : sides_of(shape)) {
      state.tensors[side.factor] = Matrix<Scalar>::Zero(side.size, side.size);
      state.tensors[side.basis] = Matrix<Scalar>::Identity(side.size, side.size);
    }
    return state;
  }

  bool moves(std::int64_t step) const override { return step > 1 || !skips_first_; }

  Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const override {
    ++state.steps;
    const std::vector<Side> sides = sides_of(shape_of(gradient));
    const bool first = state.steps == 1;
    if (first) first_bases(gradient, sides, state);
    if (!moves(state.steps)) return Matrix<Scalar>::Zero(gradient.rows(), gradient.cols());
    const std::int64_t counted = state.steps - (skips_first_ ? 1 : 0);
    const Matrix<Scalar> direction = adam(gradient, sides, counted, state);
    if (!first) {
      accumulate(gradient, sides, state);
      if ((counted + state.turn) % period_ == 0) refresh(sides, state);
    }
    return rounded(arithmetic_, direction);
  }

 private:
  /// A preconditioned side and the names of its tensors.
  struct Side {
    bool left;
    std::int64_t size;
    const char* factor;
    const char* basis;
  };

  std::vector<Side> sides_of(Shape shape) const {
    std::vector<Side> sides;
    if (shape.rows <= max_precond_dim_) sides.push_back({true, shape.rows, "GG_left", "Q_left"});
    if (shape.cols <= max_precond_dim_) sides.push_back({false, shape.cols, "GG_right", "Q_right"});
    return sides;
  }

  /// Qᵀ_left·X·Q_right
  Matrix<Scalar> project(Matrix<Scalar> X, const std::vector<Side>& sides, const State<Scalar>& state) const {
    for (const Side& side : sides) {
      const Matrix<Scalar>& Q = state.tensors.at(side.basis);
      X = side.left ? Matrix<Scalar>(Q.transpose() * X) : Matrix<Scalar>(X * Q);
    }
    return X;
  }

  /// Q_left·X·Qᵀ_right
  Matrix<Scalar> project_back(Matrix<Scalar> X, const std::vector<Side>& sides, const State<Scalar>& state) const {
    for (const Side& side : sides) {
      const Matrix<Scalar>& Q = state.tensors.at(side.basis);
      X = side.left ? Matrix<Scalar>(Q * X) : Matrix<Scalar>(X * Q.transpose());
    }
    return X;
  }

  void accumulate(const Matrix<Scalar>& gradient, const std::vector<Side>& sides, State<Scalar>& state) const {
    for (const Side& side : sides)
      accumulate_factor(state.tensors.at(side.factor), gradient, side.left, shampoo_beta_, 1 - shampoo_beta_);
  }

  void first_bases(const Matrix<Scalar>& gradient, const std::vector<Side>& sides, State<Scalar>& state) const {
    accumulate(gradient, sides, state);
    bool failed = false;
    for (const Side& side : sides) {
      const Matrix<Scalar> ridge = static_cast<Scalar>(1e-30) * Matrix<Scalar>::Identity(side.size, side.size);
      if (const auto pairs = eigh(Matrix<Scalar>(state.tensors.at(side.factor) + ridge))) {
        state.tensors.at(side.basis) = pairs->vectors.rowwise().reverse();  // by descending eigenvalue
      } else {
        failed = true;
      }
    }
    state.failed_refreshes += failed ? 1 : 0;
  }

  /// The Adam step in the bases that the gradient has not yet touched, and back.
  Matrix<Scalar> adam(const Matrix<Scalar>& gradient, const std::vector<Side>& sides, std::int64_t counted,
                      State<Scalar>& state) const {
    const auto t = static_cast<double>(counted);
    Matrix<Scalar>& m = state.tensors.at("exp_avg");
    Matrix<Scalar>& v = state.tensors.at("exp_avg_sq");
    const Matrix<Scalar> projected = project(gradient, sides, state);
    m = static_cast<Scalar>(beta1_) * m + static_cast<Scalar>(1 - beta1_) * gradient;
    v = static_cast<Scalar>(beta2_) * v + static_cast<Scalar>(1 - beta2_) * projected.cwiseProduct(projected);
    const Matrix<Scalar> ratio = project(m, sides, state).array() / (v.array().sqrt() + static_cast<Scalar>(eps_));
    Matrix<Scalar> direction = project_back(ratio, sides, state);
    if (normalize_) {
      const double rms = frobenius_norm(direction) / std::sqrt(static_cast<double>(direction.size()));
      direction /= static_cast<Scalar>(1e-30 + rms);
    }
    if (correct_bias_) direction *= static_cast<Scalar>(std::sqrt(1 - std::pow(beta2_, t)) / (1 - std::pow(beta1_, t)));
    return direction;
  }

  /// Columns in the order of diag(QᵀAQ), descending, v permuted along; then one power step and QR: Q ← qr(A·Q).
  void refresh(const std::vector<Side>& sides, State<Scalar>& state) const {
    bool failed = false;
    for (const Side& side : sides) {
      Matrix<Scalar>& Q = state.tensors.at(side.basis);
      const Matrix<Scalar> AQ = state.tensors.at(side.factor) * Q;
      if (!AQ.allFinite()) {
        failed = true;
        continue;
      }
      const Matrix<Scalar> estimates = Q.cwiseProduct(AQ).colwise().sum();
      std::vector<Eigen::Index> order(static_cast<std::size_t>(side.size));
      std::iota(order.begin(), order.end(), Eigen::Index{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](Eigen::Index a, Eigen::Index b) { return estimates(0, a) > estimates(0, b); });
      const Eigen::HouseholderQR<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>> qr(AQ(Eigen::all, order));
      const Matrix<Scalar> basis = qr.householderQ();
      if (!basis.allFinite()) {
        failed = true;
        continue;
      }
      Q = basis;
      Matrix<Scalar>& v = state.tensors.at("exp_avg_sq");
      v = side.left ? Matrix<Scalar>(v(order, Eigen::all)) : Matrix<Scalar>(v(Eigen::all, order));
    }
    state.failed_refreshes += failed ? 1 : 0;
  }

  double beta1_;
  double beta2_;
  double shampoo_beta_;
  double eps_;
  std::int64_t period_;
  std::int64_t max_precond_dim_;
  bool normalize_;
  bool correct_bias_;
  bool skips_first_;
  DType arithmetic_;
};

constexpr DType kType = DType::fp32;

/// Per side of length d, the other being e: GGᵀ, and the projections of G, of the first moment and back, 2·d²e each.
MatrixCost cost(Shape shape, const Options& options) {
  const std::int64_t bytes = bytes_of(kType);
  MatrixCost cost;
  std::int64_t factors = 0;
  for (const std::int64_t d : preconditioned_sides(shape, options.integer("max_precond_dim"))) {
    const std::int64_t e = shape.numel() / d;
    cost.products.push_back({d, d, e, 1, kType, true});
    cost.products.push_back({d, e, d, 3, kType});
    factors = checked_add(factors, checked_multiply(d, d));
  }
  cost.flops = flops_of(cost.products);
  // G and projected G read; m and v read and written; projected m read, the ratio written.
  cost.bytes_moved = checked_multiply(shape.numel(), 8 * bytes);
  cost.state_bytes = checked_add(checked_multiply(shape.numel(), 2 * bytes), checked_multiply(factors, 2 * bytes));
  return cost;
}

/// A·Q and its QR for each side. The first step's eigh happens once and is left out.
MatrixCost refresh_cost(Shape shape, const Options& options) {
  MatrixCost cost;
  for (const std::int64_t d : preconditioned_sides(shape, options.integer("max_precond_dim"))) {
    cost.products.push_back({d, d, d, 1, kType});
    cost.factorizations.push_back({Factorization::Kind::qr, d, 1});
  }
  cost.flops = flops_of(cost.products, cost.factorizations);
  return cost;
}

const OptimizerRegistration registration{OptimizerDescription{
    .name = "soap",
    .order = 2,
    .description = "Adam in the eigenbasis of Shampoo's factors",
    .citation = "Vyas et al. (arXiv 2409.11321); conventions and defaults of nikhilvyas/SOAP@a1e5535",
    .options = learning_options(
        "0.003", "0.01", "decoupled_after",
        refresh_options(
            "10",
            {
                {"beta1", NumberOption{0, kBelowOne}, "0.95", "", "decay of the first moment"},
                {"beta2", NumberOption{0, kBelowOne}, "0.95", "", "decay of the second moment"},
                {"shampoo_beta", NumberOption{-1, 1}, "-1", "", "decay of the factors; below 0: beta2"},
                {"eps", NumberOption{0, 1e6}, "1e-8", "", "added outside the root, before the bias correction"},
                max_precond_dim_option("10000"),
                {"normalize_grads", WordOption{{"on", "off"}}, "off", "", "divide the direction by its RMS"},
                {"correct_bias", WordOption{{"on", "off"}}, "on", "", "counted from the first step that moves"},
                {"merge_dims", WordOption{{"off"}}, "off", "", "a matrix keeps its two dimensions"},
                {"first_step", WordOption{{"skip", "apply"}}, "skip", "",
                 "skip: it only makes the bases; apply: it moves too, in them"},
            })),
    .needs_whole_matrix = true,
    .cost = cost,
    .refresh_cost = refresh_cost,
    .refresh_period = refresh_period,
    .verification = {{"precondition_frequency", "2"}, {"max_precond_dim", "128"}},
    .make_double = make_optimizer<Soap, double>,
    .make_float = make_optimizer<Soap, float>,
}};

}  // namespace
}  // namespace canzona::reference
