#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <limits>

#include "reference/core/error.hpp"
#include "reference/optimizers/newton_schulz.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::random_matrix;

template <class Scalar = double>
std::unique_ptr<Optimizer<Scalar>> muon(const std::map<std::string, std::string>& options = {},
                                        DType arithmetic = DType::fp64) {
  return testing_support::dense_optimizer<Scalar>("muon", options, arithmetic);
}

template <class Scalar = double>
Matrix<Scalar> first_update(const Matrix<Scalar>& gradient, const std::map<std::string, std::string>& options = {},
                            DType arithmetic = DType::fp64) {
  const auto optimizer = muon<Scalar>(options, arithmetic);
  State<Scalar> state = optimizer->init(shape_of(gradient));
  return optimizer->step(gradient, state);
}

double relative(const Matrix<double>& got, const Matrix<double>& expected) {
  return (got - expected).norm() / expected.norm();
}

const std::map<std::string, std::string> kUnscaled{{"scale", "none"}};

TEST(NewtonSchulz, OfAScalarIsThePolynomialByHand) {
  // X = 1, A = 1: B = b + c, X ← a + b + c = 3.4445 − 4.7750 + 2.0315 = 0.701; two steps: x(a + bx² + cx⁴) at 0.701.
  const Matrix<double> three = Matrix<double>::Constant(1, 1, 3);
  const auto once = newton_schulz(three, newton_schulz_coefficients("simple", 1), 0, EpsForm::max, DType::fp64);
  EXPECT_NEAR(once(0, 0), 0.701, 1e-15);
  const double x = 0.701;
  const auto twice = newton_schulz(three, newton_schulz_coefficients("simple", 2), 0, EpsForm::max, DType::fp64);
  EXPECT_NEAR(twice(0, 0), x * (3.4445 - 4.7750 * x * x + 2.0315 * x * x * x * x), 1e-15);
}

TEST(NewtonSchulz, DrivesSingularValuesTowardsOne) {
  for (const auto& [set, low, high] :
       {std::tuple{"simple", 0.68, 1.21}, {"quintic", 0.9, 1.1}, {"polar_express", 0.85, 1.15}}) {
    const Matrix<double> update = first_update(random_matrix(24, 60), {{"scale", "none"}, {"coefficients", set}});
    const Eigen::JacobiSVD<Eigen::MatrixXd> svd{Eigen::MatrixXd(update)};
    EXPECT_GE(svd.singularValues().minCoeff(), low) << set;
    EXPECT_LE(svd.singularValues().maxCoeff(), high) << set;
  }
}

TEST(NewtonSchulz, KeepsTheSingularVectors) {
  const Matrix<double> gradient = random_matrix(12, 30);
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(Eigen::MatrixXd(gradient), Eigen::ComputeThinU | Eigen::ComputeThinV);
  const Eigen::MatrixXd inner =
      svd.matrixU().transpose() * Eigen::MatrixXd(first_update(gradient, kUnscaled)) * svd.matrixV();
  EXPECT_LT((inner - Eigen::MatrixXd(inner.diagonal().asDiagonal())).norm(), 1e-12 * inner.norm());
}

TEST(NewtonSchulz, CyclesShortSetsAndRepeatsTheLastOfPolarExpress) {
  EXPECT_EQ(newton_schulz_coefficients("quintic", 7)[5], newton_schulz_coefficients("quintic", 7)[0]);
  EXPECT_EQ(newton_schulz_coefficients("polar_express", 10)[9], (Coefficients{1.875, -1.25, 0.375}));
  EXPECT_EQ(newton_schulz_coefficients("1,2,3; 4,5,6", 3)[2], (Coefficients{1, 2, 3}));
}

TEST(NewtonSchulz, HasThePublishedSets) {
  EXPECT_EQ(newton_schulz_coefficients("simple", 1), (std::vector<Coefficients>{{3.4445, -4.7750, 2.0315}}));
  EXPECT_EQ(newton_schulz_coefficients("quintic", 5), (std::vector<Coefficients>{{4.0848, -6.8946, 2.9270},
                                                                                 {3.9505, -6.3029, 2.6377},
                                                                                 {3.7418, -5.5913, 2.3037},
                                                                                 {2.8769, -3.1427, 1.2046},
                                                                                 {2.8366, -3.0525, 1.2012}}));
  EXPECT_EQ(newton_schulz_coefficients("polar_express", 8), (std::vector<Coefficients>{{8.2051, -22.9019, 16.4607},
                                                                                       {4.0664, -2.8612, 0.5184},
                                                                                       {3.9096, -2.8234, 0.5250},
                                                                                       {3.2856, -2.4153, 0.4853},
                                                                                       {2.2779, -1.6198, 0.3985},
                                                                                       {1.8726, -1.2307, 0.3585},
                                                                                       {1.8564, -1.2132, 0.3568},
                                                                                       {1.8750, -1.2500, 0.3750}}));
}

TEST(NewtonSchulz, InBf16RoundsAfterEveryOperation) {
  // X = [3 4]/5 → [0.6015625 0.80078125];  A = 1.00313 → 1;  A² = 1;  bA = −4.775 → −4.78125;  cA² = 2.0315 → 2.03125;
  // B = −2.75;  BX = [−1.654297 −2.202148] → [−1.65625 −2.203125];  aX = [2.072082 2.758291] → [2.078125 2.765625].
  const Matrix<float> matrix = (Matrix<float>(1, 2) << 3, 4).finished();
  const auto once = newton_schulz(matrix, newton_schulz_coefficients("simple", 1), 0, EpsForm::max, DType::bf16);
  EXPECT_EQ(once, (Matrix<float>(1, 2) << 0.421875f, 0.5625f).finished());
}

TEST(NewtonSchulz, NormsBeyondTheScalarsRangeDoNotEraseTheUpdate) {
  const Matrix<float> huge = Matrix<float>::Constant(4, 4, 3e38f);
  const auto update = newton_schulz(huge, newton_schulz_coefficients("simple", 5), 0, EpsForm::max, DType::fp32);
  EXPECT_GT(update.norm(), 0.5f);
}

TEST(NewtonSchulz, RefusesListsThatAreNotTriples) {
  for (const char* bad : {"", "fancy", "1,2", "1,2,3,4", "1,2,x", "1,2,nan", "1,2,3,", ";"}) {
    EXPECT_THROW(newton_schulz_coefficients(bad, 5), InputError) << bad;
  }
}

TEST(Muon, ZeroGradientGivesZeroUpdate) {
  for (const char* eps : {"0", "1e-7"}) {
    for (const char* form : {"add", "max"}) {
      const Matrix<double> update =
          first_update(Matrix<double>(Matrix<double>::Zero(4, 6)), {{"eps", eps}, {"eps_form", form}});
      EXPECT_EQ(update, (Matrix<double>::Zero(4, 6)));
    }
  }
}

TEST(Muon, ScalingTheGradientLeavesTheUpdateUnchanged) {
  const Matrix<double> gradient = random_matrix(10, 24);
  const Matrix<double> update = first_update(gradient);
  for (const double scale : {1e-10, 1e10})
    EXPECT_LT(relative(first_update(Matrix<double>(scale * gradient)), update), 1e-12);
  const Matrix<float> small = gradient.cast<float>();
  const Matrix<float> float_update = first_update(small, {}, DType::fp32);
  // In fp32 the normalised input may differ by a rounding, which five steps amplify by at most 3.4445⁵ = 485.
  for (const float scale : {1e-10f, 1e10f}) {
    const Matrix<float> scaled = first_update(Matrix<float>(scale * small), {}, DType::fp32);
    EXPECT_LT((scaled - float_update).norm() / float_update.norm(), 485 * std::numeric_limits<float>::epsilon());
  }
}

TEST(Muon, AddedEpsilonDampsSmallGradientsAndMaximumDoesNot) {
  const Matrix<double> tiny = 1e-10 * random_matrix(6, 6);
  const Matrix<double> whole = first_update(random_matrix(6, 6));
  EXPECT_LT(relative(first_update(tiny), whole), 1e-12);
  EXPECT_GT(relative(first_update(tiny, {{"eps", "1e-7"}, {"eps_form", "add"}}), whole), 0.1);
}

TEST(Muon, PermutingRowsAndColumnsPermutesTheUpdate) {
  const Matrix<double> gradient = random_matrix(9, 14);
  Eigen::PermutationMatrix<Eigen::Dynamic> rows(9), cols(14);
  rows.setIdentity();
  cols.setIdentity();
  std::reverse(rows.indices().begin(), rows.indices().end());
  std::rotate(cols.indices().begin(), cols.indices().begin() + 5, cols.indices().end());
  const Matrix<double> permuted = rows * gradient * cols;
  const Matrix<double> expected = rows * first_update(gradient) * cols;
  EXPECT_LT(relative(first_update(permuted), expected), 1e-12);
}

TEST(Muon, TransposingTheGradientTransposesTheUnscaledUpdate) {
  const Matrix<double> gradient = random_matrix(7, 20);
  const Matrix<double> transposed = gradient.transpose();
  EXPECT_EQ(first_update(transposed, kUnscaled), Matrix<double>(first_update(gradient, kUnscaled).transpose()));
}

TEST(Muon, OfARowIsTheNormalisedRowTimesThePolynomial) {
  for (const auto& [rows, cols] : {std::pair<int, int>{1, 9}, {9, 1}, {1, 1}}) {
    const Matrix<double> gradient = random_matrix(rows, cols);
    const Matrix<double> update = first_update(gradient, kUnscaled);
    double x = 1;
    for (int step = 0; step < 5; ++step) x *= 3.4445 - 4.7750 * x * x + 2.0315 * x * x * x * x;
    EXPECT_LT(relative(update, Matrix<double>(x * gradient / gradient.norm())), 1e-12);
  }
}

TEST(Muon, ScalesByTheShapeOfTheMatrix) {
  const Matrix<double> gradient = random_matrix(18, 8);
  const Matrix<double> unscaled = first_update(gradient, kUnscaled);
  for (const auto& [scale, factor] : {std::pair{"match_rms_adamw", 0.2 * std::sqrt(18.0)},
                                      {"original", std::sqrt(18.0 / 8)},
                                      {"spectral", std::sqrt(18.0)}}) {
    EXPECT_LT(relative(first_update(gradient, {{"scale", scale}}), Matrix<double>(factor * unscaled)), 1e-14) << scale;
  }
  EXPECT_LT(relative(first_update(random_matrix(8, 18), {{"scale", "original"}}),
                     first_update(random_matrix(8, 18), kUnscaled)),
            1e-15);
}

TEST(Muon, MomentumFormsAgreeInDirection) {
  // accumulate is ema divided by 1 − μ, which normalisation removes.
  const auto ema = muon();
  const auto accumulate = muon({{"momentum_form", "accumulate"}});
  State<double> a = ema->init({6, 10});
  State<double> b = accumulate->init({6, 10});
  for (int step = 0; step < 3; ++step) {
    const Matrix<double> gradient = random_matrix(6, 10, 10 + step);
    EXPECT_LT(relative(accumulate->step(gradient, b), ema->step(gradient, a)), 1e-12);
  }
  EXPECT_LT(relative(Matrix<double>(0.05 * b.tensors.at("momentum")), a.tensors.at("momentum")), 1e-14);
}

TEST(Muon, LowPrecisionsAreReallyRoundedAndStayNear) {
  // KellerJordan's file in bf16 was measured 0.105 to 0.12 from fp64; fp16 carries eight times the bits.
  const Matrix<double> gradient = random_matrix(32, 80);
  const Matrix<double> exact = first_update(gradient);
  const Matrix<float> low = gradient.cast<float>();
  const auto error = [&](DType type) { return relative(first_update(low, {}, type).cast<double>(), exact); };
  EXPECT_LT(error(DType::fp32), 485 * std::numeric_limits<float>::epsilon());
  EXPECT_GT(error(DType::bf16), 1e-3);
  EXPECT_LT(error(DType::bf16), 0.2);
  EXPECT_GT(error(DType::fp16), 1e-4);
  EXPECT_LT(error(DType::fp16), 0.2 / 4);
}

TEST(Muon, LowPrecisionUpdatesAreExactInTheirType) {
  for (const DType type : {DType::bf16, DType::fp16}) {
    const Matrix<float> update = first_update(random_matrix<float>(5, 7), {}, type);
    EXPECT_EQ(update, rounded(type, update));
  }
}

TEST(Muon, OfTheSameMatrixAmongOthersIsTheSameUpdate) {
  const auto optimizer = muon();
  std::vector<State<double>> states(3, optimizer->init({8, 12}));
  std::vector<Matrix<double>> together;
  for (int matrix = 0; matrix < 3; ++matrix)
    together.push_back(optimizer->step(random_matrix(8, 12, matrix), states[matrix]));
  for (int matrix = 0; matrix < 3; ++matrix) EXPECT_EQ(first_update(random_matrix(8, 12, matrix)), together[matrix]);
}

TEST(Muon, CostsTwentyM2NPlusTenM3) {
  const OptimizerDescription& description = Optimizers::instance().find("muon");
  const Options options(description.options, {}, "muon");
  EXPECT_EQ(description.cost({3, 7}, options).flops, 20 * 9 * 7 + 10 * 27);
  EXPECT_EQ(description.cost({7, 3}, options).flops, 20 * 9 * 7 + 10 * 27);
  EXPECT_EQ(description.cost({3, 7}, options).state_bytes, 3 * 7 * 4);
  EXPECT_THROW(description.cost({std::int64_t{1} << 22, std::int64_t{1} << 22}, options), InputError);
}

// 0.95·0 + 0.05·3 = 0.15 is 0x3e19999a in fp32 and 0x3e1a in bf16, 0.150390625; then 0.95·0.150390625 + 0.05 =
// 0.192871094 is 0x3e4580… and 0x3e46, 0.193359375.
TEST(Muon, KeepsItsMomentumInBf16WhereAsked) {
  const auto muon = testing_support::dense_optimizer<float>("muon", {{"momentum_dtype", "bf16"}});
  State<float> state = muon->init({1, 1});
  muon->step(Matrix<float>::Constant(1, 1, 3), state);
  EXPECT_EQ(state.tensors.at("momentum")(0, 0), 0.150390625f);
  muon->step(Matrix<float>::Constant(1, 1, 1), state);
  EXPECT_EQ(state.tensors.at("momentum")(0, 0), 0.193359375f);
  const auto& description = Optimizers::instance().find("muon");
  EXPECT_EQ(description.cost({3, 7}, Options(description.options, {{"momentum_dtype", "bf16"}}, "muon")).state_bytes,
            3 * 7 * 2);
}

TEST(Muon, HasTheDefaultsOfTheDefinitions) {
  const OptimizerDescription& description = Optimizers::instance().find("muon");
  const std::map<std::string, std::string> expected{
      {"warmup_steps", "0"},       {"lr", "0.001"},
      {"weight_decay", "0.1"},     {"weight_decay_form", "decoupled_before"},
      {"momentum", "0.95"},        {"momentum_form", "ema"},
      {"momentum_dtype", "fp32"},  {"nesterov", "on"},
      {"ns_steps", "5"},           {"eps", "1e-30"},
      {"eps_form", "max"},         {"coefficients", "simple"},
      {"scale", "match_rms_adamw"}};
  EXPECT_EQ(Options(description.options, {}, "muon").values(), expected);
}

TEST(AdamW, HasMoonlightsDefaultsAndRefusesBetasOfOne) {
  const OptimizerDescription& description = Optimizers::instance().find("adamw");
  const std::map<std::string, std::string> expected{
      {"warmup_steps", "0"}, {"lr", "0.001"},   {"weight_decay", "0.1"}, {"weight_decay_form", "decoupled_before"},
      {"beta1", "0.9"},      {"beta2", "0.95"}, {"eps", "1e-8"}};
  EXPECT_EQ(Options(description.options, {}, "adamw").values(), expected);
  EXPECT_THROW(Options(description.options, {{"beta1", "1"}}, "adamw"), InputError);
  EXPECT_EQ(description.cost({1, 10}, Options(description.options, {}, "adamw")).state_bytes, 80);
}

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheSign) {
  // m̂ = g, v̂ = g²: U = g/(|g| + eps).
  const OptimizerDescription& description = Optimizers::instance().find("adamw");
  const auto adamw = description.make<double>(
      Options(description.options, {{"lr", "0.5"}, {"weight_decay", "0.1"}}, "adamw"), DType::fp64);
  State<double> state = adamw->init({1, 3});
  Matrix<double> gradient(1, 3), weights(1, 3);
  gradient << 2, -4, 0;
  weights << 1, 1, 1;
  const Matrix<double> update = adamw->step(gradient, state);
  EXPECT_NEAR(update(0, 0), 1, 1e-8);
  EXPECT_NEAR(update(0, 1), -1, 1e-8);
  EXPECT_EQ(update(0, 2), 0);
  adamw->apply(1, update.data(), weights.data(), 3);
  EXPECT_NEAR(weights(0, 0), 0.95 - 0.5, 1e-8);  // decay 1 − 0.5·0.1 first
  EXPECT_NEAR(weights(0, 2), 0.95, 1e-15);
}

TEST(LearningRate, RisesLinearlyToItsValueAndStaysThere) {
  const std::vector<std::pair<std::int64_t, double>> expected{{1, 0.2}, {2, 0.4}, {4, 0.8}, {5, 1.0}, {6, 1.0}};
  for (const auto& [step, rate] : expected) EXPECT_DOUBLE_EQ(learning_rate(1.0, 5, step), rate) << step;
  EXPECT_EQ(learning_rate(0.3, 0, 1), 0.3);
}

// W₂ = (1 − lr₂·wd)·W₁ − lr₂·U with lr₂ = 0.5·2/4.
TEST(LearningRate, OfAStepScalesItsDecayToo) {
  const OptimizerDescription& description = Optimizers::instance().find("adamw");
  const Options options(description.options, {{"lr", "0.5"}, {"weight_decay", "0.1"}, {"warmup_steps", "4"}}, "adamw");
  const auto adamw = description.make<double>(options, DType::fp64);
  double weight = 1;
  const double update = 1;
  adamw->apply(2, &update, &weight, 1);
  EXPECT_DOUBLE_EQ(weight, (1 - 0.25 * 0.1) - 0.25);
}

TEST(LearningRate, WarmsUpAdamWBesideAMatrixOptimizerToo) {
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {1, 1}, "canzona", "muon");
  request.optimizer_options = {{"warmup_steps", "7"}, {"lr", "0.5"}};
  const Workload workload = make_workload(request);
  EXPECT_EQ(workload.element_optimizer->name, "adamw");
  EXPECT_EQ(workload.element_options.integer("warmup_steps"), 7);
  EXPECT_EQ(workload.element_options.number("lr"), 0.001);  // its own
}

TEST(AdamW, IsElementwiseWhereverItIsCut) {
  const OptimizerDescription& description = Optimizers::instance().find("adamw");
  const auto adamw = description.make<float>(Options(description.options, {}, "adamw"), DType::fp32);
  State<float> whole = adamw->init({1, 37});
  State<float> left = adamw->init({1, 11});
  State<float> right = adamw->init({1, 26});
  for (int step = 0; step < 4; ++step) {
    const Matrix<float> gradient = random_matrix<float>(1, 37, step);
    const Matrix<float> update = adamw->step(gradient, whole);
    EXPECT_EQ(Matrix<float>(update.leftCols(11)), adamw->step(Matrix<float>(gradient.leftCols(11)), left));
    EXPECT_EQ(Matrix<float>(update.rightCols(26)), adamw->step(Matrix<float>(gradient.rightCols(26)), right));
  }
}

}  // namespace
}  // namespace canzona::reference
