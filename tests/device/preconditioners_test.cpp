// Shampoo and SOAP of the engine against their references, within bounds that follow from their response to noise.
#include "reference/core/error.hpp"
#include "tests/device/trials.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;
using namespace trials;

/// max_precond_dim at the shorter side, whose factor has full rank after one gradient.
Given on_the_shorter_side(Shape shape) { return {{"max_precond_dim", std::to_string(shape.shorter())}}; }

TEST(EngineShampoo, EqualsItsReference) {
  // Roots from the tenth step on, when every factor has full rank.
  for (const Shape& shape : breaking_shapes()) expect_equal({"shampoo", {}, shape});
}

TEST(EngineShampoo, FollowsItsOptions) {
  // A side of 24 gains 16 ranks a step of 16 columns: full from the second step.
  const std::vector<Given> all{{{"beta1", "0"}},
                               {{"beta2", "1"}},
                               {{"beta2", "0.9"}, {"use_bias_correction", "off"}},
                               {{"epsilon", "0.5"}},
                               {{"inverse_exponent", "0.5"}},
                               {{"inverse_exponent", "0.3"}},
                               {{"grafting", "none"}},
                               {{"grafting", "sgd"}, {"grafting_denominator_epsilon", "0.25"}},
                               {{"grafting_beta2", "0.9"}, {"grafting_epsilon", "0.1"}},
                               {{"grafting", "none"}, {"start_preconditioning_step", "5"}},
                               {{"start_preconditioning_step", "3"}},
                               {{"max_precond_dim", "16"}},
                               {{"max_precond_dim", "8"}},
                               {{"block_size", "10"}, {"precondition_frequency", "4"}},
                               {{"block_size", "16"}, {"max_precond_dim", "10"}},  // the last tiles only
                               {{"block_size", "100"}, {"grafting", "sgd"}}};
  for (const Given& given : all) {
    expect_equal({"shampoo", with({{"precondition_frequency", "2"}}, given), {24, 16}, 8});
    expect_equal({"shampoo", with({{"precondition_frequency", "2"}}, given), {16, 24}, 8});
  }
}

TEST(EngineShampoo, FindsRootsByCoupledIterations) {
  const std::vector<Given> all{{{"root_method", "coupled_newton"}},
                               {{"root_method", "coupled_newton"}, {"inverse_exponent", "1"}},
                               {{"root_method", "coupled_newton"}, {"inverse_exponent", "0.333333333333"}},
                               {{"root_method", "coupled_newton"}, {"max_iterations", "3"}},
                               {{"root_method", "coupled_newton"}, {"tolerance", "0.01"}},
                               {{"root_method", "coupled_higher_order"}, {"tolerance", "1e-4"}},
                               {{"root_method", "coupled_higher_order"}, {"order", "2"}, {"tolerance", "1e-4"}},
                               {{"root_method", "coupled_higher_order"}, {"order", "5"}, {"tolerance", "1e-4"}},
                               {{"root_method", "coupled_higher_order"}, {"rel_epsilon", "0.01"}},
                               {{"root_method", "coupled_higher_order"}, {"inverse_exponent", "0.5"}}};
  for (const Given& given : all) {
    for (const Shape& shape : std::vector<Shape>{{1, 1}, {9, 1}, {24, 16}, {16, 24}, {33, 33}})
      expect_equal({"shampoo", with({{"precondition_frequency", "4"}, {"epsilon", "1e-2"}}, given), shape, 9});
  }
}

TEST(EngineSoap, EqualsItsReferenceOnItsShorterSide) {
  for (const Shape& shape : breaking_shapes()) {
    for (const char* period : {"2", "10"})
      expect_equal({"soap", with(on_the_shorter_side(shape), {{"precondition_frequency", period}}), shape});
  }
}

TEST(EngineSoap, EqualsItsReferenceOnBothSides) {
  // A zero gradient makes the axes the first bases. What follows them is determined once the factors have full rank.
  for (const Shape& shape : breaking_shapes())
    expect_equal({"soap", {{"precondition_frequency", "10"}}, shape, 14, true});
}

TEST(EngineSoap, FollowsItsOptions) {
  const std::vector<Given> all{{},
                               {{"beta1", "0.5"}, {"beta2", "0.8"}},
                               {{"shampoo_beta", "0.7"}},
                               {{"shampoo_beta", "1"}},
                               {{"eps", "0.01"}},
                               {{"normalize_grads", "on"}},
                               {{"correct_bias", "off"}},
                               {{"normalize_grads", "on"}, {"correct_bias", "off"}},
                               {{"max_precond_dim", "0"}}};
  for (const Given& given : all) {
    for (const Shape& shape : std::vector<Shape>{{16, 24}, {24, 16}})
      expect_equal(
          {"soap", with(with({{"precondition_frequency", "2"}}, on_the_shorter_side(shape)), given), shape, 8});
    expect_equal({"soap", with({{"precondition_frequency", "2"}}, given), {16, 16}, 8});
  }
}

TEST(EngineSoap, AppliesItsFirstStepWhereAsked) {
  // In both bases of its own factors a gradient is diagonal, and the signs of the noise off the diagonal would be the
  // update: so one side only, or axes for bases.
  for (const char* period : {"1", "2", "3"}) {
    const Given given{{"first_step", "apply"}, {"precondition_frequency", period}};
    for (const Shape& shape : std::vector<Shape>{{16, 24}, {24, 16}})
      expect_equal({"soap", with(given, on_the_shorter_side(shape)), shape, 8});
    expect_equal({"soap", given, {16, 16}, 8, true});
  }
}

TEST(EnginePreconditioners, ATurnMovesRefreshesAndAStackIsEveryMatrixAlone) {
  // The third turn refreshes after one gradient, whose right factor has no full rank: epsilon decides there.
  const Given given{{"precondition_frequency", "3"}, {"refresh", "staggered"}};
  const Given ridged = with(given, {{"epsilon", "0.1"}});
  const std::vector<std::int64_t> turns{0, 1, 2};
  for (const Trial& trial :
       std::vector<Trial>{{"shampoo", ridged, {12, 16}, 9},
                          {"shampoo", with(ridged, {{"block_size", "7"}}), {12, 16}, 9},
                          {"shampoo", with(ridged, {{"root_method", "coupled_newton"}}), {12, 16}, 9},
                          {"soap", with(given, {{"max_precond_dim", "12"}}), {12, 16}, 9}}) {
    EngineRun stack(trial, turns);
    std::vector<Matrices> gradients, alone;
    for (std::size_t index = 0; index < turns.size(); ++index) {
      gradients.push_back(trial.gradients(index));
      alone.push_back(expect_equal(trial, gradients[index], turns[index]));
    }
    for (int step = 0; step < trial.steps; ++step) {
      Matrix<float> gradient(3 * trial.shape.rows, trial.shape.cols), expected = gradient;
      for (int index = 0; index < 3; ++index) {
        gradient.middleRows(index * trial.shape.rows, trial.shape.rows) = gradients[index][step];
        expected.middleRows(index * trial.shape.rows, trial.shape.rows) = alone[index][step];
      }
      const Matrix<float> got = stack.step(gradient);
      if (device_under_test::kStacksAreBitwise) {
        EXPECT_EQ(got, expected) << trial << " step " << step;
        continue;
      }
      for (int index = 0; index < 3; ++index) {
        const Matrices own{got.middleRows(index * trial.shape.rows, trial.shape.rows)};
        EXPECT_LE(worst_error(own, {alone[index][step]}), derived_bound(trial, gradients[index], turns[index]))
            << trial << " step " << step;
      }
    }
  }
}

TEST(EnginePreconditioners, TheFactorIsOfTheGradient) {
  // A power of two only moves exponents.
  for (const char* optimizer : {"shampoo", "soap"}) {
    const Trial trial{optimizer, {{"precondition_frequency", "2"}}, {8, 8}, 5};
    Matrices larger = trial.gradients();
    for (Matrix<float>& gradient : larger) gradient *= 4;
    EXPECT_EQ(EngineRun(trial, {0}).steps(larger, 0.25f), EngineRun(trial, {0}).steps(trial.gradients())) << optimizer;
  }
}

TEST(EnginePreconditioners, InFp64TheyAreTheirReferencesInFp64ButForTheUpdatesRounding) {
  const Given often{{"precondition_frequency", "2"}};
  std::vector<Trial> trials{{"soap", often, {16, 16}, 8},
                            {"soap", with(often, {{"normalize_grads", "on"}, {"max_precond_dim", "12"}}), {12, 20}, 8},
                            {"shampoo", with(often, {{"block_size", "10"}, {"epsilon", "1e-2"}}), {24, 16}, 8}};
  for (const char* method : {"eigen", "coupled_newton", "coupled_higher_order"})
    trials.push_back({"shampoo", with(often, {{"root_method", method}, {"epsilon", "1e-2"}}), {24, 16}, 8});
  for (Trial& trial : trials) {
    trial.arithmetic = DType::fp64;
    const auto optimizer = testing_support::dense_optimizer<double>(trial.optimizer, trial.given);
    reference::State<double> state = optimizer->init(trial.shape);
    EngineRun engine(trial, {0});
    for (const Matrix<float>& gradient : trial.gradients()) {
      const Matrix<double> expected = optimizer->step(gradient.cast<double>(), state);
      const Matrix<double> own = engine.step(gradient).cast<double>();
      // Rounded to fp32: the corrections of both moments, of which one is under a root, and the update.
      EXPECT_LE((own - expected).norm(), (0.5 + 0.25 + 0.5) * kEpsilon * expected.norm()) << trial;
    }
  }
}

/// Refreshes at every step, by every method.
std::vector<Trial> brisk_trials() {
  const Given often{{"precondition_frequency", "1"}, {"max_precond_dim", "4"}};
  const Given soap = with(often, {{"shampoo_beta", "0.1"}});
  const Given shampoo = with(often, {{"beta1", "0"}, {"beta2", "0.1"}, {"grafting", "none"}, {"epsilon", "0.1"}});
  std::vector<Trial> trials{{"soap", soap, {4, 6}, 6}, {"soap", with(soap, {{"first_step", "apply"}}), {4, 6}, 6}};
  for (const char* method : {"eigen", "coupled_newton", "coupled_higher_order"})
    trials.push_back({"shampoo", with(shampoo, {{"root_method", method}}), {4, 6}, 6});
  return trials;
}

TEST(EnginePreconditioners, ZeroGradientsLeaveNothingBehind) {
  for (const Trial& trial : brisk_trials()) {
    EngineRun engine(trial, {0});
    const Matrix<float> zero = Matrix<float>::Zero(4, 6);
    for (int step = 0; step < 4; ++step) EXPECT_EQ(engine.step(zero), zero) << trial;
    EXPECT_TRUE(engine.step(random_matrix<float>(4, 6, 1)).allFinite()) << trial;
    EXPECT_EQ(engine.failed_refreshes(), 0) << trial;
  }
}

TEST(EnginePreconditioners, WithoutANewRootOrBasisTheOldStaysAndIsCounted) {
  // Two squares of 1.5e19 are finite in fp32 but not their sum, nor 0.9 times that: from the fourth step on the second
  // matrix has no finite left factor, while moments are finite.
  for (const Trial& trial : brisk_trials()) {
    std::vector<Matrices> gradients{trial.gradients(0), trial.gradients(1)};
    gradients[1][3](1, 2) = gradients[1][3](1, 4) = 1.5e19f;
    expect_equal(trial, gradients[1]);
    EngineRun engine(trial, {0, 0});
    for (int step = 0; step < trial.steps; ++step) {
      Matrix<float> gradient(8, 6);
      gradient << gradients[0][step], gradients[1][step];
      EXPECT_TRUE(engine.step(gradient).allFinite()) << trial << " step " << step;
      EXPECT_EQ(engine.failed_refreshes(), std::max(0, step - 2)) << trial << " step " << step;
    }
  }
}

TEST(EnginePreconditioners, ASeriesThatWentAstrayIsNoRoot) {
  // The right factor has rank 4 of 6 after the first step, and no epsilon helps.
  const Trial trial{"shampoo", {{"precondition_frequency", "1"}, {"root_method", "coupled_higher_order"}}, {4, 6}, 3};
  const auto optimizer = testing_support::dense_optimizer<float>(trial.optimizer, trial.given);
  reference::State<float> state = optimizer->init(trial.shape);
  EngineRun engine(trial, {0});
  for (const Matrix<float>& gradient : trial.gradients()) {
    engine.step(gradient);
    optimizer->step(gradient, state);
    EXPECT_EQ(engine.failed_refreshes(), state.failed_refreshes);
  }
  EXPECT_EQ(engine.failed_refreshes(), 1);
}

TEST(EnginePreconditioners, ACoupledRootMustBeAnInteger) {
  EXPECT_THROW(EngineRun({"shampoo", {{"root_method", "coupled_newton"}, {"inverse_exponent", "0.3"}}, {4, 4}}, {0}),
               InputError);
}

}  // namespace
}  // namespace canzona::optimized
