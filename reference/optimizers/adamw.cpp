// AdamW: decoupled weight decay, bias-corrected, eps outside the root. Elementwise, always in the type of the
// master weights; every element is computed by the same expression wherever a parameter is cut.
#include <cmath>

#include "reference/optimizers/optimizer.hpp"

namespace canzona::reference {
namespace {

template <class Scalar>
class AdamW final : public Optimizer<Scalar> {
 public:
  AdamW(const Options& options, DType /*arithmetic*/)
      : Optimizer<Scalar>(options),
        beta1_(options.number("beta1")),
        beta2_(options.number("beta2")),
        eps_(options.number("eps")) {}

  State<Scalar> init(Shape shape) const override {
    const Matrix<Scalar> zero = Matrix<Scalar>::Zero(shape.rows, shape.cols);
    return {{{"exp_avg", zero}, {"exp_avg_sq", zero}}, 0};
  }

  Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const override {
    ++state.steps;
    const auto t = static_cast<double>(state.steps);
    const auto b1 = static_cast<Scalar>(beta1_);
    const auto b2 = static_cast<Scalar>(beta2_);
    const auto one_minus_b1 = static_cast<Scalar>(1 - beta1_);
    const auto one_minus_b2 = static_cast<Scalar>(1 - beta2_);
    const auto correction1 = static_cast<Scalar>(1 - std::pow(beta1_, t));
    const auto correction2 = static_cast<Scalar>(std::sqrt(1 - std::pow(beta2_, t)));
    const auto eps = static_cast<Scalar>(eps_);
    Scalar* m = state.tensors.at("exp_avg").data();
    Scalar* v = state.tensors.at("exp_avg_sq").data();
    Matrix<Scalar> update(gradient.rows(), gradient.cols());
    for (std::int64_t i = 0; i < gradient.size(); ++i) {
      const Scalar g = gradient.data()[i];
      m[i] = b1 * m[i] + one_minus_b1 * g;
      v[i] = b2 * v[i] + one_minus_b2 * g * g;
      // U = (m/(1 − β₁ᵗ)) / (√v/√(1 − β₂ᵗ) + eps)
      update.data()[i] = (m[i] / correction1) / (std::sqrt(v[i]) / correction2 + eps);
    }
    return update;
  }

 private:
  double beta1_;
  double beta2_;
  double eps_;
};

MatrixCost cost(Shape shape, const Options&) {
  const std::int64_t fp32 = bytes_of(DType::fp32);
  MatrixCost cost;
  cost.flops = checked_multiply(shape.numel(), 13);              // operations of the loop body above
  cost.bytes_moved = checked_multiply(shape.numel(), 5 * fp32);  // G read, m and v read and written
  cost.state_bytes = checked_multiply(shape.numel(), 2 * fp32);
  return cost;
}

const OptimizerRegistration registration{OptimizerDescription{
    .name = "adamw",
    .order = 10,
    .description = "Adam with decoupled weight decay; also updates what no matrix optimizer takes",
    .citation = "Loshchilov, Hutter (arXiv 1711.05101); betas and lr of MoonshotAI/Moonlight@c2ad5b2",
    .options = learning_options("0.001", "0.1", "decoupled_before",
                                {
                                    {"beta1", NumberOption{0, kBelowOne}, "0.9", "", "decay of the first moment"},
                                    {"beta2", NumberOption{0, kBelowOne}, "0.95", "", "decay of the second moment"},
                                    {"eps", NumberOption{0, 1e6}, "1e-8", "", "added outside the root"},
                                }),
    .needs_whole_matrix = false,
    .cost = cost,
    .make_double = make_optimizer<AdamW, double>,
    .make_float = make_optimizer<AdamW, float>,
}};

}  // namespace
}  // namespace canzona::reference
