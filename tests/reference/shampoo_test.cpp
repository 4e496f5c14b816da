#include <gtest/gtest.h>

#include <cmath>

#include "reference/core/error.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::random_matrix;

using Given = std::map<std::string, std::string>;

std::unique_ptr<Optimizer<double>> shampoo(const Given& given) {
  return testing_support::dense_optimizer("shampoo", given);
}

/// Roots at every step of the raw gradient, nothing grafted.
Given bare(const Given& more = {}) {
  Given given{{"precondition_frequency", "1"}, {"beta1", "0"}, {"grafting", "none"}};
  for (const auto& [name, value] : more) given[name] = value;
  return given;
}

Matrix<double> first_update(const Matrix<double>& gradient, const Given& given) {
  const auto optimizer = shampoo(given);
  State<double> state = optimizer->init(shape_of(gradient));
  return optimizer->step(gradient, state);
}

TEST(Shampoo, OfADiagonalGradientByHand) {
  // L = R = diag(16, 81), roots diag(1/2, 1/3): P = diag(4/4, 9/9).
  Matrix<double> gradient(2, 2);
  gradient << 4, 0, 0, 9;
  EXPECT_LT((first_update(gradient, bare()) - Matrix<double>::Identity(2, 2)).norm(), 1e-12);
  // With exponent 1/2: P = diag(4/16, 9/81).
  Matrix<double> half(2, 2);
  half << 0.25, 0, 0, 1 / 9.0;
  EXPECT_LT((first_update(gradient, bare({{"inverse_exponent", "0.5"}})) - half).norm(), 1e-12);
}

TEST(Shampoo, IsOneSidedWhereASideIsLongerThanTheLimit) {
  // Only L = diag(16, 81) has a root: P = [4/2 0 0; 0 9/3 0].
  Matrix<double> gradient(2, 3), expected(2, 3);
  gradient << 4, 0, 0, 0, 9, 0;
  expected << 2, 0, 0, 0, 3, 0;
  EXPECT_LT((first_update(gradient, bare({{"max_precond_dim", "2"}})) - expected).norm(), 1e-12);
  EXPECT_EQ(first_update(gradient, bare({{"max_precond_dim", "1"}})), gradient);
}

TEST(Shampoo, BlocksAreMatricesOfTheirOwn) {
  const auto whole = shampoo(bare({{"block_size", "3"}}));
  const auto single = shampoo(bare());
  State<double> state = whole->init({5, 7});
  std::map<std::pair<int, int>, State<double>> states;
  for (int step = 0; step < 3; ++step) {
    const Matrix<double> gradient = random_matrix(5, 7, step);
    const Matrix<double> update = whole->step(gradient, state);
    for (int row = 0; row < 5; row += 3) {
      for (int col = 0; col < 7; col += 3) {
        const Matrix<double> tile = gradient.block(row, col, std::min(3, 5 - row), std::min(3, 7 - col));
        auto [own, fresh] = states.try_emplace({row, col});
        if (fresh) own->second = single->init(shape_of(tile));
        EXPECT_EQ(Matrix<double>(update.block(row, col, tile.rows(), tile.cols())), single->step(tile, own->second));
      }
    }
  }
}

TEST(Shampoo, TakesTheNormOfWhatItGrafts) {
  const Matrix<double> gradient = random_matrix(6, 4, 1);
  EXPECT_NEAR(first_update(gradient, bare({{"grafting", "sgd"}})).norm(), gradient.norm(), 1e-10);
  // Adam's first direction is the sign of every element, so its norm is √24.
  EXPECT_NEAR(first_update(gradient, bare({{"grafting", "adam"}})).norm(), std::sqrt(24.0), 1e-5);
}

TEST(Shampoo, BeforeItsFirstRootsItIsWhatItGrafts) {
  const auto optimizer = shampoo({{"precondition_frequency", "3"}, {"beta1", "0"}, {"grafting", "sgd"}});
  State<double> state = optimizer->init({4, 4});
  for (int step = 1; step <= 3; ++step) {
    const Matrix<double> gradient = random_matrix(4, 4, step);
    const Matrix<double> update = optimizer->step(gradient, state);
    EXPECT_EQ(update == gradient, step < 3) << step;
  }
}

TEST(Shampoo, ATurnMovesItsRefreshes) {
  // Frequency 3, turn 1: roots at 2, 5, 8. The roots change at exactly those steps.
  const auto optimizer = shampoo({{"precondition_frequency", "3"}});
  State<double> state = optimizer->init({4, 4});
  state.turn = 1;
  for (int step = 1; step <= 8; ++step) {
    const Matrix<double> before = state.tensors.at("root_left");
    optimizer->step(random_matrix(4, 4, step), state);
    EXPECT_EQ(state.tensors.at("root_left") != before, step % 3 == 2) << step;
  }
}

TEST(Shampoo, ZeroAndRankDeficientGradientsAreOrdinary) {
  const Matrix<double> zero = Matrix<double>::Zero(5, 3);
  for (const char* method : {"eigen", "coupled_newton", "coupled_higher_order"}) {
    EXPECT_EQ(first_update(zero, {{"precondition_frequency", "1"}, {"root_method", method}}), zero) << method;
    const Matrix<double> rank1 = random_matrix(5, 1, 1) * random_matrix(1, 3, 2);
    EXPECT_TRUE(first_update(rank1, {{"precondition_frequency", "1"}, {"root_method", method}, {"epsilon", "1e-6"}})
                    .allFinite())
        << method;
  }
  // With epsilon 0 the root of nothing does not exist: the identity is kept, and counted.
  const auto optimizer = shampoo(bare({{"epsilon", "0"}}));
  State<double> state = optimizer->init({5, 3});
  EXPECT_EQ(optimizer->step(zero, state), zero);
  EXPECT_EQ(state.failed_refreshes, 1);
  EXPECT_EQ(state.tensors.at("root_left"), (Matrix<double>::Identity(5, 5)));
}

TEST(Shampoo, KeepsTheOldRootsWhenTheNewCannotBeFound) {
  const auto optimizer = shampoo(bare());
  State<double> state = optimizer->init({4, 4});
  optimizer->step(random_matrix(4, 4, 1), state);
  const Matrix<double> root = state.tensors.at("root_left");
  Matrix<double> poisoned = random_matrix(4, 4, 2);
  poisoned(1, 1) = std::nan("");
  EXPECT_NO_THROW(optimizer->step(poisoned, state));
  EXPECT_EQ(state.tensors.at("root_left"), root);
  EXPECT_EQ(state.failed_refreshes, 1);
}

TEST(Shampoo, CostsWhatItsProductsCost) {
  const OptimizerDescription& description = Optimizers::instance().find("shampoo");
  const Options options(description.options, {}, "shampoo");
  EXPECT_EQ(description.cost({3, 7}, options).flops, 4 * 3 * 7 * (3 + 7));
  // Momentum, Adam's second moment, and a factor and a root for each side.
  EXPECT_EQ(description.cost({3, 7}, options).state_bytes, 4 * (2 * 21 + 2 * (9 + 49)));
  EXPECT_EQ(description.refresh_cost({3, 7}, options).flops, 9 * (27 + 343) + 2 * (27 + 343));
  const Options newton(description.options, {{"root_method", "coupled_newton"}}, "shampoo");
  EXPECT_EQ(description.refresh_cost({3, 7}, newton).flops, 20 * 8 * (27 + 343));
  EXPECT_TRUE(description.refresh_cost({3, 7}, newton).nominal);
  // Order 3 takes one product more, and no more iterations than allowed.
  const Options third(description.options, {{"root_method", "coupled_higher_order"}, {"max_iterations", "7"}},
                      "shampoo");
  EXPECT_EQ(description.refresh_cost({3, 7}, third).flops, 7 * 10 * (27 + 343));
  const Options one_sided(description.options, {{"max_precond_dim", "3"}}, "shampoo");
  EXPECT_EQ(description.cost({3, 7}, one_sided).flops, 4 * 9 * 7);
  EXPECT_EQ(description.refresh_cost({3, 7}, one_sided).flops, 11 * 27);
  const Options tiled(description.options, {{"block_size", "3"}}, "shampoo");
  EXPECT_EQ(description.cost({3, 7}, tiled).flops, 2 * (4 * 9 * 6) + 4 * 3 * 4);
}

TEST(Shampoo, RefusesExponentsOutsideItsRange) {
  for (const char* bad : {"0", "-1", "1.5", "nan", "x"})
    EXPECT_THROW(shampoo({{"inverse_exponent", bad}}), InputError) << bad;
  EXPECT_THROW(shampoo({{"inverse_exponent", "0.3"}, {"root_method", "coupled_newton"}}), InputError);
  EXPECT_NO_THROW(shampoo({{"inverse_exponent", "0.33333333"}, {"root_method", "coupled_newton"}}));
}

}  // namespace
}  // namespace canzona::reference
