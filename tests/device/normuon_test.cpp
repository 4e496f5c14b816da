// NorMuon of the engine against its reference, within bounds that follow from its response to noise.
#include "tests/device/trials.hpp"

namespace canzona::optimized {
namespace {

using namespace trials;

/// Of five Newton–Schulz steps.
constexpr int kProducts = 15;

TEST(EngineNorMuon, EqualsItsReference) {
  for (const std::string& variant : EngineOptimizers::instance().find("normuon").variants) {
    for (const Shape& shape : breaking_shapes())
      expect_equal(
          {.optimizer = "normuon", .given = {}, .shape = shape, .steps = 6, .variant = variant, .products = kProducts});
  }
}

TEST(EngineNorMuon, FollowsItsOptions) {
  const std::vector<Given> all{{{"beta2", "0"}},
                               {{"beta2", "0.5"}},
                               {{"second_moment_eps", "0.01"}},
                               {{"norm_eps", "3"}},
                               {{"second_moment_eps", "0"}, {"norm_eps", "0"}},
                               {{"nesterov", "off"}, {"scale", "spectral"}},
                               {{"coefficients", "quintic"}}};
  for (const Given& given : all) {
    expect_equal({.optimizer = "normuon", .given = given, .shape = {24, 16}, .steps = 6, .products = kProducts});
    expect_equal({.optimizer = "normuon", .given = given, .shape = {16, 24}, .steps = 6, .products = kProducts});
  }
}

TEST(EngineNorMuon, LeavesRowsOfZerosAlone) {
  // A row of the gradient that is always zero has no second moment to be divided by.
  const Given given{{"second_moment_eps", "0"}, {"norm_eps", "0"}};
  const Trial trial{.optimizer = "normuon", .given = given, .shape = {7, 13}, .steps = 4, .products = kProducts};
  Matrices gradients = trial.gradients();
  for (Matrix<float>& gradient : gradients) gradient.row(3).setZero();
  for (const Matrix<float>& update : expect_equal(trial, gradients)) EXPECT_EQ(update.row(3).norm(), 0);
}

}  // namespace
}  // namespace canzona::optimized
