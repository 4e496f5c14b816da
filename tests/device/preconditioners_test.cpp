// Shampoo and SOAP of the engine against their references. How far they may part follows from how far the reference
// parts from itself when its gradients are off by one unit in the last place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "optimized/host/host_device.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/core/error.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;

using Given = std::map<std::string, std::string>;
using Matrices = std::vector<Matrix<float>>;

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

Given with(Given given, const Given& more) {
  for (const auto& [name, value] : more) given[name] = value;
  return given;
}

/// Some steps of one optimizer on matrices of one shape.
struct Trial {
  std::string optimizer;
  Given given;
  Shape shape;
  int steps = 12;
  bool rests_first = false;  ///< the first gradient is zero

  /// The gradients of one matrix, by step.
  Matrices gradients(std::uint64_t matrix = 0) const {
    Matrices list;
    for (int step = 0; step < steps; ++step) {
      list.push_back(random_matrix<float>(shape.rows, shape.cols, 1000 * matrix + static_cast<std::uint64_t>(step)));
      if (rests_first && step == 0) list.back().setZero();
    }
    return list;
  }
};

std::ostream& operator<<(std::ostream& out, const Trial& trial) {
  out << trial.optimizer << ' ' << trial.shape.rows << " by " << trial.shape.cols;
  for (const auto& [name, value] : trial.given) out << ' ' << name << '=' << value;
  return out;
}

Matrices reference_updates(const Trial& trial, const Matrices& gradients, std::int64_t turn = 0) {
  const auto optimizer = testing_support::dense_optimizer<float>(trial.optimizer, trial.given);
  reference::State<float> state = optimizer->init(trial.shape);
  state.turn = turn;
  Matrices updates;
  for (const Matrix<float>& gradient : gradients) updates.push_back(optimizer->step(gradient, state));
  return updates;
}

/// By step, the updates of a stack, one matrix over another.
class EngineRun {
 public:
  EngineRun(const Trial& trial, std::vector<std::int64_t> turns)
      : options_(reference::Optimizers::instance().find(trial.optimizer).options, trial.given, trial.optimizer),
        shape_{trial.shape.rows * static_cast<std::int64_t>(turns.size()), trial.shape.cols},
        own_(EngineOptimizers::instance()
                 .find(trial.optimizer)
                 .prepare({options_, *device_, workspace_, trial.shape, std::move(turns)})),
        gradient_(device_->allocate_elements<float>(shape_.numel())),
        update_(device_->allocate_elements<float>(shape_.numel())) {}

  Matrix<float> step(const Matrix<float>& gradient, float factor = 1) {
    const std::int64_t allocations = device_->allocations();
    Matrix<float> update(shape_.rows, shape_.cols);
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(update.size());
    device_->copy(*stream_, gradient.data(), gradient_.as<float>().raw(), bytes);
    own_->step(*stream_, factor, gradient_.as<float>(), update_.as<float>());
    device_->copy(*stream_, update_.as<float>().raw(), update.data(), bytes);
    stream_->synchronize();
    EXPECT_EQ(device_->allocations(), allocations) << "memory was taken inside a step";
    return update;
  }
  Matrices steps(const Matrices& gradients, float factor = 1) {
    Matrices updates;
    for (const Matrix<float>& gradient : gradients) updates.push_back(step(gradient, factor));
    return updates;
  }
  std::int64_t failed_refreshes() const { return own_->failed_refreshes(); }

 private:
  std::unique_ptr<Device> device_ = make_host_device();
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  Workspace workspace_{*device_};
  Options options_;
  Shape shape_;
  std::unique_ptr<MatrixOptimizer> own_;
  Buffer gradient_;
  Buffer update_;
};

/// The worst ‖U − V‖/‖V‖ over steps; where V is zero, so must U be.
double worst_error(const Matrices& got, const Matrices& expected) {
  double worst = 0;
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const double difference = frobenius_norm(Matrix<float>(got[step] - expected[step]));
    const double error = difference == 0 ? 0 : difference / frobenius_norm(expected[step]);
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}

/// Every element times 1 + ε·u, u one of −1, 0, 1.
Matrices disturbed(Matrices gradients, std::uint64_t seed) {
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    const std::uint64_t key = random_key({seed, step});
    for (std::int64_t i = 0; i < gradients[step].size(); ++i) {
      const auto unit = static_cast<double>(mix_bits(key + static_cast<std::uint64_t>(i)) % 3) - 1;
      gradients[step].data()[i] *= static_cast<float>(1 + kEpsilon * unit);
    }
  }
  return gradients;
}

/// √k·r: r is the worst relative response of the reference to noise of one unit in the last place of its input, in
/// three draws, and never taken below that unit. The rounding of products of inner length k, k at most the longer side,
/// is with high probability no more than √k such units (Higham, Mary, SIAM J. Sci. Comput. 41(5), 2019, A2815).
double derived_bound(const Trial& trial, const Matrices& gradients, std::int64_t turn = 0) {
  const Matrices undisturbed = reference_updates(trial, gradients, turn);
  double response = kEpsilon;
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    response = std::max(response, worst_error(reference_updates(trial, disturbed(gradients, seed), turn), undisturbed));
  return std::sqrt(static_cast<double>(std::max(trial.shape.rows, trial.shape.cols))) * response;
}

/// Above this a bound would let pass what is simply another matrix.
constexpr double kMeaningful = 1e-2;

/// The engine's updates of one matrix, held against the reference's.
Matrices expect_equal(const Trial& trial, const Matrices& gradients, std::int64_t turn = 0) {
  const double bound = derived_bound(trial, gradients, turn);
  EXPECT_LT(bound, kMeaningful) << trial << ": this trial determines nothing";
  Matrices updates = EngineRun(trial, {turn}).steps(gradients);
  const double error = worst_error(updates, reference_updates(trial, gradients, turn));
  EXPECT_LE(error, bound) << trial << " turn " << turn;
  return updates;
}
void expect_equal(const Trial& trial) { expect_equal(trial, trial.gradients()); }

const std::vector<Shape>& breaking_shapes() {
  static const std::vector<Shape> shapes{{1, 9}, {9, 1}, {1, 1}, {7, 13}, {13, 7}, {33, 33}, {65, 130}, {130, 65}};
  return shapes;
}

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
      EXPECT_EQ(stack.step(gradient), expected) << trial << " step " << step;
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
