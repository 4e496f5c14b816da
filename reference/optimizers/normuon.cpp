// NorMuon: Muon whose orthogonalized momentum has each row divided by its running RMS, and then its norm restored.
#include <cmath>

#include "reference/optimizers/muon.hpp"

namespace canzona::reference {
namespace {

template <class Scalar>
class NorMuon final : public Muon<Scalar> {
 public:
  NorMuon(const Options& options, DType arithmetic)
      : Muon<Scalar>(options, arithmetic),
        beta2_(options.number("beta2")),
        second_moment_eps_(options.number("second_moment_eps")),
        norm_eps_(options.number("norm_eps")) {}

  State<Scalar> init(Shape shape) const override {
    State<Scalar> state = Muon<Scalar>::init(shape);
    state.tensors["second_momentum"] = Matrix<Scalar>::Zero(shape.rows, 1);
    return state;
  }

  Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const override {
    const Matrix<Scalar> O = this->orthogonalized(gradient, state);
    return this->scaled(normalized(O, state.tensors.at("second_momentum")));
  }

 private:
  /// s_i ← β₂·s_i + (1 − β₂)·mean_j O_ij²;  N_ij = O_ij/(√s_i + eps);  N·‖O‖/(‖N‖ + norm_eps)
  Matrix<Scalar> normalized(const Matrix<Scalar>& O, Matrix<Scalar>& s) const {
    const auto cols = static_cast<double>(O.cols());
    Matrix<Scalar> N = O;
    for (Eigen::Index row = 0; row < O.rows(); ++row) {
      const double mean = O.row(row).template cast<double>().squaredNorm() / cols;
      s(row, 0) = static_cast<Scalar>(beta2_) * s(row, 0) + static_cast<Scalar>(1 - beta2_) * static_cast<Scalar>(mean);
      // Where both are zero, as in a row of zeros without an eps, the row stays.
      const Scalar divisor = std::sqrt(s(row, 0)) + static_cast<Scalar>(second_moment_eps_);
      if (divisor > 0) N.row(row) /= divisor;
    }
    const double norm = frobenius_norm(N) + norm_eps_;
    if (norm > 0) N *= static_cast<Scalar>(frobenius_norm(O) / norm);
    return N;
  }

  double beta2_;
  double second_moment_eps_;
  double norm_eps_;
};

MatrixCost cost(Shape shape, const Options& options) {
  const std::int64_t fp32 = bytes_of(DType::fp32);
  const std::int64_t bf16 = bytes_of(DType::bf16);
  MatrixCost cost = muon_cost(shape, options);
  // One pass reads O for its norm and row means, one reads O and writes N with its norm, one reads N and writes U; each
  // row's number is read and written.
  cost.bytes_moved = checked_add(cost.bytes_moved, checked_multiply(shape.numel(), 5 * bf16));
  cost.bytes_moved = checked_add(cost.bytes_moved, checked_multiply(shape.rows, 2 * fp32));
  cost.state_bytes = checked_add(cost.state_bytes, checked_multiply(shape.rows, fp32));
  return cost;
}

const OptimizerRegistration registration{OptimizerDescription{
    .name = "normuon",
    .order = 0,
    .description = "Muon with a second moment of each row of the orthogonalized momentum",
    .citation = "zichongli5/NorMuon@d45c9a4 (arXiv 2510.05491); scale, lr and weight decay as muon",
    .options = learning_options(
        "0.001", "0.1", "decoupled_before",
        muon_options({
            {"beta2", NumberOption{0, kBelowOne}, "0.95", "", "decay of the second moment"},
            {"second_moment", WordOption{{"row_mean"}}, "row_mean", "", "of a row: the mean of its squares"},
            {"second_moment_eps", NumberOption{0, 1e6}, "1e-10", "", "added outside the root"},
            {"norm_eps", NumberOption{0, 1e6}, "1e-10", "", "added to the norm divided by"},
        })),
    .needs_whole_matrix = true,
    .cost = cost,
    .make_double = make_optimizer<NorMuon, double>,
    .make_float = make_optimizer<NorMuon, float>,
}};

}  // namespace
}  // namespace canzona::reference
