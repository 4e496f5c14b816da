#include <gtest/gtest.h>

#include <cmath>

#include "reference/optimizers/optimizer.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::dense_optimizer;
using testing_support::random_matrix;

// Two epsilons of 1e-10, beside row RMS and norms of at least 0.1.
constexpr double kEpsilons = 2 * 1e-10 / 0.1;

TEST(NorMuon, IsMuonWithEachRowOverItsRunningRmsAndTheNormKept) {
  const auto muon = dense_optimizer("muon", {{"scale", "none"}});
  const auto normuon = dense_optimizer("normuon", {{"scale", "none"}, {"beta2", "0.9"}});
  State<double> a = muon->init({4, 6}), b = normuon->init({4, 6});
  Eigen::ArrayXd s = Eigen::ArrayXd::Zero(4);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const Matrix<double> gradient = random_matrix(4, 6, step);
    const Matrix<double> O = muon->step(gradient, a);
    s = 0.9 * s + 0.1 * O.rowwise().squaredNorm().array() / 6;
    Matrix<double> expected = O.array().colwise() / s.sqrt();
    expected *= O.norm() / expected.norm();
    EXPECT_LT((normuon->step(gradient, b) - expected).norm(), kEpsilons * O.norm());
  }
  EXPECT_EQ(b.steps, 3);
}

TEST(NorMuon, OnTheFirstStepEveryRowLeavesWithTheSameRms) {
  const auto normuon = dense_optimizer("normuon", {{"scale", "none"}});
  State<double> state = normuon->init({5, 8});
  const Matrix<double> update = normuon->step(random_matrix(5, 8, 1), state);
  for (int row = 1; row < 5; ++row)
    EXPECT_NEAR(update.row(row).norm(), update.row(0).norm(), kEpsilons * update.norm());
}

TEST(NorMuon, OfASingleRowIsMuon) {
  const auto muon = dense_optimizer("muon"), normuon = dense_optimizer("normuon");
  State<double> a = muon->init({1, 9}), b = normuon->init({1, 9});
  const Matrix<double> gradient = random_matrix(1, 9, 1);
  const Matrix<double> expected = muon->step(gradient, a);
  EXPECT_LT((normuon->step(gradient, b) - expected).norm(), kEpsilons * expected.norm());
}

TEST(NorMuon, RowsOfZerosStayZeroWithoutAnyEpsilon) {
  const auto normuon = dense_optimizer("normuon", {{"second_moment_eps", "0"}, {"norm_eps", "0"}});
  State<double> state = normuon->init({3, 4});
  Matrix<double> gradient = random_matrix(3, 4, 1);
  EXPECT_EQ(normuon->step(Matrix<double>(0 * gradient), state), (Matrix<double>::Zero(3, 4)));
  gradient.row(1).setZero();
  const Matrix<double> update = normuon->step(gradient, state);
  EXPECT_TRUE(update.allFinite());
  EXPECT_EQ(update.row(1).norm(), 0);
}

TEST(NorMuon, CostsMuonsProductsAndARowOfState) {
  const OptimizerDescription& muon = Optimizers::instance().find("muon");
  const OptimizerDescription& normuon = Optimizers::instance().find("normuon");
  const MatrixCost a = muon.cost({3, 7}, Options(muon.options, {}, "muon"));
  const MatrixCost b = normuon.cost({3, 7}, Options(normuon.options, {}, "normuon"));
  EXPECT_EQ(b.flops, a.flops);
  EXPECT_EQ(b.state_bytes, a.state_bytes + 3 * 4);
  EXPECT_GT(b.bytes_moved, a.bytes_moved);
}

}  // namespace
}  // namespace canzona::reference
