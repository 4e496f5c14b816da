// Muon: momentum, orthogonalized by Newton–Schulz, scaled by the matrix's shape.
#include <algorithm>
#include <cmath>

#include "reference/optimizers/newton_schulz.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::reference {
namespace {

double scale_factor(const std::string& scale, Shape shape) {
  const auto rows = static_cast<double>(shape.rows);
  const auto cols = static_cast<double>(shape.cols);
  if (scale == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, cols));
  if (scale == "original") return std::sqrt(std::max(1.0, rows / cols));
  if (scale == "spectral") return std::sqrt(std::max(rows, cols));
  return 1;  // none
}

template <class Scalar>
class Muon final : public Optimizer<Scalar> {
 public:
  Muon(const Options& options, DType arithmetic)
      : Optimizer<Scalar>(options.number("lr"), options.number("weight_decay")),
        momentum_(options.number("momentum")),
        ema_(options.is("momentum_form", "ema")),
        nesterov_(options.is("nesterov", "on")),
        coefficients_(newton_schulz_coefficients(options.text("coefficients"), options.integer("ns_steps"))),
        eps_(options.number("eps")),
        eps_form_(options.is("eps_form", "add") ? EpsForm::add : EpsForm::max),
        scale_(options.text("scale")),
        arithmetic_(arithmetic) {}

  State<Scalar> init(Shape shape) const override {
    return {{{"momentum", Matrix<Scalar>::Zero(shape.rows, shape.cols)}}, 0};
  }

  Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const override {
    // ema:        M ← μM + (1 − μ)G,  U = μM + (1 − μ)G
    // accumulate: M ← μM + G,         U = μM + G         (Nesterov; without it U = M)
    const auto mu = static_cast<Scalar>(momentum_);
    const auto weight = static_cast<Scalar>(ema_ ? 1 - momentum_ : 1);
    Matrix<Scalar>& momentum = state.tensors.at("momentum");
    momentum = mu * momentum + weight * gradient;
    ++state.steps;
    const Matrix<Scalar> direction = nesterov_ ? Matrix<Scalar>(mu * momentum + weight * gradient) : momentum;
    const Matrix<Scalar> orthogonal = newton_schulz(direction, coefficients_, eps_, eps_form_, arithmetic_);
    // The update leaves in the arithmetic's type: that is what travels back to the shards.
    const auto scale = static_cast<Scalar>(scale_factor(scale_, shape_of(gradient)));
    return rounded(arithmetic_, Matrix<Scalar>(scale * orthogonal));
  }

 private:
  double momentum_;
  bool ema_;
  bool nesterov_;
  std::vector<Coefficients> coefficients_;
  double eps_;
  EpsForm eps_form_;
  std::string scale_;
  DType arithmetic_;
};

/// With m ≤ n, each Newton–Schulz step is XXᵀ (m × m × n), A² (m × m × m) and BX (m × n × m): 4m²n + 2m³ FLOPs.
MatrixCost cost(Shape shape, const Options& options) {
  const std::int64_t m = shape.shorter();
  const std::int64_t n = shape.longer();
  const std::int64_t steps = options.integer("ns_steps");
  const std::int64_t fp32 = bytes_of(DType::fp32);
  const std::int64_t bf16 = bytes_of(DType::bf16);
  MatrixCost cost;
  cost.products = {{m, m, n, steps}, {m, m, m, steps}, {m, n, m, steps}};
  for (const MatrixProduct& product : cost.products) cost.flops = checked_add(cost.flops, product.flops());
  // One pass reads G and M and writes M and U with its norm; one reads U and writes X.
  cost.bytes_moved = checked_multiply(shape.numel(), 4 * fp32 + fp32 + bf16);
  cost.state_bytes = checked_multiply(shape.numel(), fp32);
  return cost;
}

const OptimizerRegistration registration{OptimizerDescription{
    .name = "muon",
    .order = 0,
    .description = "momentum orthogonalized by Newton–Schulz",
    .citation = "KellerJordan/Muon@857d1ad; scale and lr of MoonshotAI/Moonlight@c2ad5b2 (arXiv 2502.16982)",
    .options =
        {
            {"lr", NumberOption{0, 1e6}, "0.001", "", "learning rate"},
            {"weight_decay", NumberOption{0, 1e6}, "0.1", "", "decoupled, applied before the step"},
            {"momentum", NumberOption{0, 1}, "0.95", "", "μ"},
            {"momentum_form", WordOption{{"ema", "accumulate"}}, "ema", "", "M ← μM + (1−μ)G, or M ← μM + G"},
            {"nesterov", WordOption{{"on", "off"}}, "on", "", "look one momentum step ahead"},
            {"coefficients",
             TextOption{"simple, quintic, polar_express, or 'a,b,c; a,b,c; …'",
                        [](const std::string& set) { newton_schulz_coefficients(set, 1); }},
             "simple", "", "Newton–Schulz polynomial"},
            {"ns_steps", IntegerOption{1, 100}, "5", "steps", "Newton–Schulz steps"},
            {"eps", NumberOption{0, 1e6}, "1e-30", "", "of the normalisation"},
            {"eps_form", WordOption{{"add", "max"}}, "max", "", "M/(‖M‖+eps), or M/max(‖M‖, eps)"},
            {"scale", WordOption{{"match_rms_adamw", "original", "spectral", "none"}}, "match_rms_adamw", "",
             "0.2·√max(rows, cols), √max(1, rows/cols), √max(rows, cols), 1"},
        },
    .needs_whole_matrix = true,
    .cost = cost,
    .make_double = [](const Options& options,
                      DType arithmetic) { return std::make_unique<Muon<double>>(options, arithmetic); },
    .make_float = [](const Options& options,
                     DType arithmetic) { return std::make_unique<Muon<float>>(options, arithmetic); },
}};

}  // namespace
}  // namespace canzona::reference
