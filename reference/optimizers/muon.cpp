#include "reference/optimizers/muon.hpp"

#include <algorithm>
#include <cmath>

namespace canzona::reference {

double muon_scale(const std::string& scale, Shape shape) {
  const auto rows = static_cast<double>(shape.rows);
  const auto cols = static_cast<double>(shape.cols);
  if (scale == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, cols));
  if (scale == "original") return std::sqrt(std::max(1.0, rows / cols));
  if (scale == "spectral") return std::sqrt(std::max(rows, cols));
  return 1;  // none
}

namespace {

/// fp64 stands for no rounding.
DType momentum_type(const Options& options) { return options.is("momentum_dtype", "bf16") ? DType::bf16 : DType::fp64; }

}  // namespace

template <class Scalar>
Muon<Scalar>::Muon(const Options& options, DType arithmetic)
    : Optimizer<Scalar>(options),
      momentum_(options.number("momentum")),
      momentum_type_(momentum_type(options)),
      ema_(options.is("momentum_form", "ema")),
      nesterov_(options.is("nesterov", "on")),
      coefficients_(newton_schulz_coefficients(options.text("coefficients"), options.integer("ns_steps"))),
      eps_(options.number("eps")),
      eps_form_(options.is("eps_form", "add") ? EpsForm::add : EpsForm::max),
      scale_(options.text("scale")),
      arithmetic_(arithmetic) {}

template <class Scalar>
State<Scalar> Muon<Scalar>::init(Shape shape) const {
  return {.tensors = {{"momentum", Matrix<Scalar>::Zero(shape.rows, shape.cols)}}};
}

template <class Scalar>
Matrix<Scalar> Muon<Scalar>::step(const Matrix<Scalar>& gradient, State<Scalar>& state) const {
  return scaled(orthogonalized(gradient, state));
}

template <class Scalar>
Matrix<Scalar> Muon<Scalar>::orthogonalized(const Matrix<Scalar>& gradient, State<Scalar>& state) const {
  // ema:        M ← μM + (1 − μ)G,  U = μM + (1 − μ)G
  // accumulate: M ← μM + G,         U = μM + G         (Nesterov; without it U = M); M is kept rounded
  const auto mu = static_cast<Scalar>(momentum_);
  const auto weight = static_cast<Scalar>(ema_ ? 1 - momentum_ : 1);
  Matrix<Scalar>& momentum = state.tensors.at("momentum");
  momentum = rounded(momentum_type_, Matrix<Scalar>(mu * momentum + weight * gradient));
  ++state.steps;
  const Matrix<Scalar> direction = nesterov_ ? Matrix<Scalar>(mu * momentum + weight * gradient) : momentum;
  return newton_schulz(direction, coefficients_, eps_, eps_form_, arithmetic_);
}

template <class Scalar>
Matrix<Scalar> Muon<Scalar>::scaled(const Matrix<Scalar>& update) const {
  const auto scale = static_cast<Scalar>(muon_scale(scale_, shape_of(update)));
  return rounded(arithmetic_, Matrix<Scalar>(scale * update));
}

template class Muon<float>;
template class Muon<double>;

std::vector<OptionDescription> muon_options(const std::vector<OptionDescription>& own) {
  std::vector<OptionDescription> options{
      {"momentum", NumberOption{0, 1}, "0.95", "", "μ"},
      {"momentum_form", WordOption{{"ema", "accumulate"}}, "ema", "", "M ← μM + (1−μ)G, or M ← μM + G"},
      {"momentum_dtype", WordOption{{"fp32", "bf16"}}, "fp32", "", "in which momentum is kept (fp64 where all is)"},
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
  };
  options.insert(options.end(), own.begin(), own.end());
  return options;
}

/// With m ≤ n, each Newton–Schulz step is XXᵀ (m × m × n), A² (m × m × m) and BX (m × n × m): 4m²n + 2m³ FLOPs.
MatrixCost muon_cost(Shape shape, const Options& options) {
  const std::int64_t m = shape.shorter();
  const std::int64_t n = shape.longer();
  const std::int64_t steps = options.integer("ns_steps");
  const std::int64_t fp32 = bytes_of(DType::fp32);
  const std::int64_t bf16 = bytes_of(DType::bf16);
  MatrixCost cost;
  cost.products = {{m, m, n, steps, DType::bf16, true}, {m, m, m, steps, DType::bf16, true}, {m, n, m, steps}};
  cost.flops = flops_of(cost.products);
  // One pass reads G and M and writes M and U with its norm; one reads U and writes X.
  const std::int64_t momentum = bytes_of(momentum_type(options)) < fp32 ? bf16 : fp32;
  cost.bytes_moved = checked_multiply(shape.numel(), 2 * fp32 + 2 * momentum + fp32 + bf16);
  cost.state_bytes = checked_multiply(shape.numel(), momentum);
  return cost;
}

namespace {

const OptimizerRegistration registration{OptimizerDescription{
    .name = "muon",
    .order = 0,
    .description = "momentum orthogonalized by Newton–Schulz",
    .citation = "KellerJordan/Muon@857d1ad; scale and lr of MoonshotAI/Moonlight@c2ad5b2 (arXiv 2502.16982)",
    .options = learning_options("0.001", "0.1", "decoupled_before", muon_options()),
    .needs_whole_matrix = true,
    .cost = muon_cost,
    .make_double = make_optimizer<Muon, double>,
    .make_float = make_optimizer<Muon, float>,
}};

}  // namespace
}  // namespace canzona::reference
