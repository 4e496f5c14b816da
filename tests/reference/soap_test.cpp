#include <gtest/gtest.h>

#include <cmath>

#include "reference/optimizers/optimizer.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::random_matrix;

using Given = std::map<std::string, std::string>;

std::unique_ptr<Optimizer<double>> soap(const Given& given = {}) {
  return testing_support::dense_optimizer("soap", given);
}

TEST(Soap, FirstStepNeitherMovesNorDecaysNorCounts) {
  const auto optimizer = soap({{"lr", "1"}, {"weight_decay", "0.5"}});
  State<double> state = optimizer->init({3, 3});
  Matrix<double> weights = random_matrix(3, 3, 9);
  const Matrix<double> before = weights;
  const Matrix<double> update = optimizer->step(random_matrix(3, 3, 1), state);
  optimizer->apply(state.steps, update.data(), weights.data(), weights.size());
  EXPECT_EQ(weights, before);
  EXPECT_EQ(state.tensors.at("exp_avg"), (Matrix<double>::Zero(3, 3)));
  const Matrix<double>& Q = state.tensors.at("Q_left");
  EXPECT_LT((Q * Q.transpose() - Matrix<double>::Identity(3, 3)).norm(), 1e-14);
}

TEST(Soap, SecondStepOnTheSameDiagonalGradientMovesByItsSigns) {
  // Bases are the coordinate axes; Adam's first counted step is g/(|g| + eps'), so signs; off the diagonal 0/eps = 0.
  Matrix<double> gradient(2, 2), signs(2, 2);
  gradient << -4, 0, 0, 9;
  signs << -1, 0, 0, 1;
  const auto optimizer = soap();
  State<double> state = optimizer->init({2, 2});
  optimizer->step(gradient, state);
  // eps = 1e-8 beside √v = √0.05·|g| of at least 0.9, twice; and what the moments of two equal gradients differ by.
  const double bound = 2 * 1e-8 / 0.9;
  EXPECT_LT((optimizer->step(gradient, state) - signs).norm(), bound);
  const auto applied = soap({{"first_step", "apply"}});
  State<double> own = applied->init({2, 2});
  EXPECT_TRUE(applied->moves(1));
  EXPECT_LT((applied->step(gradient, own) - signs).norm(), bound);
}

TEST(Soap, WithoutASideToPreconditionItIsAdam) {
  // U = √(1 − β₂ᵗ)/(1 − β₁ᵗ) · m/(√v + eps), t from the second call.
  const auto optimizer = soap({{"max_precond_dim", "1"}});
  State<double> state = optimizer->init({3, 4});
  optimizer->step(random_matrix(3, 4, 0), state);
  Matrix<double> m = Matrix<double>::Zero(3, 4), v = m;
  for (int t = 1; t <= 4; ++t) {
    const Matrix<double> g = random_matrix(3, 4, t);
    m = 0.95 * m + 0.05 * g;
    v = 0.95 * v + 0.05 * g.cwiseProduct(g);
    const double correction = std::sqrt(1 - std::pow(0.95, t)) / (1 - std::pow(0.95, t));
    const Matrix<double> expected = correction * (m.array() / (v.array().sqrt() + 1e-8)).matrix();
    EXPECT_LT((optimizer->step(g, state) - expected).norm(), 1e-12 * expected.norm());
  }
}

TEST(Soap, ARefreshPermutesTheSecondMomentWithTheColumnsAndDoesNotRotateIt) {
  // The factor's order contradicts the basis: axis 2 has the larger eigenvalue. The gradient is zero, so v only decays.
  const auto optimizer = soap({{"precondition_frequency", "1"}, {"max_precond_dim", "2"}});
  State<double> state = optimizer->init({2, 3});
  state.steps = 1;
  state.tensors.at("GG_left") << 1, 0, 0, 5;
  Matrix<double>& v = state.tensors.at("exp_avg_sq");
  v << 1, 2, 3, 10, 20, 30;
  optimizer->step(Matrix<double>::Zero(2, 3), state);
  Matrix<double> expected(2, 3);
  expected << 9.5, 19, 28.5, 0.95, 1.9, 2.85;
  EXPECT_LT((v - expected).norm(), 1e-13);
  EXPECT_NEAR(std::abs(state.tensors.at("Q_left")(1, 0)), 1, 1e-15);  // the first column is axis 2
}

TEST(Soap, ATurnMovesItsRefreshes) {
  const auto optimizer = soap({{"precondition_frequency", "3"}});
  State<double> state = optimizer->init({4, 4});
  state.turn = 1;
  optimizer->step(random_matrix(4, 4, 0), state);
  for (int counted = 1; counted <= 8; ++counted) {
    const Matrix<double> before = state.tensors.at("Q_left");
    optimizer->step(random_matrix(4, 4, counted), state);
    EXPECT_EQ(state.tensors.at("Q_left") != before, counted % 3 == 2) << counted;
  }
}

TEST(Soap, ZeroGradientsLeaveNothingBehind) {
  const auto optimizer = soap({{"precondition_frequency", "1"}});
  State<double> state = optimizer->init({5, 3});
  const Matrix<double> zero = Matrix<double>::Zero(5, 3);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(optimizer->step(zero, state), zero);
  EXPECT_TRUE(optimizer->step(random_matrix(5, 3, 1), state).allFinite());
}

TEST(Soap, KeepsItsBasesWhenNewOnesCannotBeFound) {
  for (const int good_steps : {0, 2}) {
    const auto optimizer = soap({{"precondition_frequency", "1"}});
    State<double> state = optimizer->init({4, 4});
    for (int step = 0; step < good_steps; ++step) optimizer->step(random_matrix(4, 4, step), state);
    const Matrix<double> basis = state.tensors.at("Q_left");
    Matrix<double> poisoned = random_matrix(4, 4, 7);
    poisoned(0, 3) = INFINITY;
    EXPECT_NO_THROW(optimizer->step(poisoned, state));
    EXPECT_EQ(state.tensors.at("Q_left"), basis);
    EXPECT_EQ(state.failed_refreshes, 1) << good_steps;
  }
}

TEST(Soap, CostsWhatItsProductsCost) {
  const OptimizerDescription& description = Optimizers::instance().find("soap");
  const Options options(description.options, {}, "soap");
  EXPECT_EQ(description.cost({3, 7}, options).flops, 8 * 3 * 7 * (3 + 7));
  EXPECT_EQ(description.cost({3, 7}, options).state_bytes, 4 * (2 * 21 + 2 * (9 + 49)));
  EXPECT_EQ(description.refresh_cost({3, 7}, options).flops, 2 * 27 + 8 * 27 / 3 + 2 * 343 + 8 * 343 / 3);
  EXPECT_EQ(description.refresh_period(options), 10);
}

}  // namespace
}  // namespace canzona::reference
