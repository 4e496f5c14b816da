// Every optimizer of the engine against its reference, on shapes that break kernels.
#include <gtest/gtest.h>

#include <cmath>

#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using device_under_test::OnDevice;
using testing_support::random_matrix;

using reference::OptimizerDescription;

/// The worst ‖U − U_ref‖/‖U_ref‖ over four steps.
double worst_error(const EngineOptimizer& optimizer, std::int64_t rows, std::int64_t cols, float factor,
                   const std::map<std::string, std::string>& given, const std::string& variant = {}, int threads = 1) {
  const OptimizerDescription& description = reference::Optimizers::instance().find(optimizer.name);
  const Options options(description.options, given, optimizer.name);
  const auto expected = description.make<float>(options, DType::fp32);
  OnDevice on(threads);
  Workspace workspace(*on.device);
  const Shape shape{rows, cols};
  const auto own = optimizer.prepare({options, *on.device, workspace, shape, {0}, variant});
  const auto gradient = on.zeros<float>(shape.numel());
  const auto values = on.zeros<StepValues>(1);
  const MatrixOut update{on.zeros<float>(shape.numel()), rows, cols};
  reference::State<float> state = expected->init(shape);
  const std::int64_t allocations = on.device->allocations();
  double worst = 0;
  for (std::int64_t step = 1; step <= 4; ++step) {
    const Matrix<float> g = random_matrix<float>(rows, cols, static_cast<std::uint64_t>(step));
    on.device->copy(*on.stream, g.data(), gradient.raw(), sizeof(float) * static_cast<std::size_t>(g.size()));
    put(*on.stream, optimizer.values(options, step, factor), values);
    own->step(*on.stream, step, values, gradient, update.data);
    const Matrix<float> got = on.get(update);
    const Matrix<float> want = expected->step(Matrix<float>(factor * g), state);
    const double error = (got - want).norm() / want.norm();
    if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
  }
  EXPECT_EQ(on.device->allocations(), allocations) << "memory was taken inside a step";
  return worst;
}

TEST(EngineOptimizers, EqualTheirReferencesWithinAmplifiedRounding) {
  for (const EngineOptimizer& optimizer : EngineOptimizers::instance().all()) {
    const OptimizerDescription& description = reference::Optimizers::instance().find(optimizer.name);
    if (!optimizer.amplification) continue;  // normuon_test.cpp, preconditioners_test.cpp
    const bool whole = description.needs_whole_matrix;
    for (const auto& [rows, cols] :
         std::vector<std::pair<int, int>>{{1, 9}, {9, 1}, {1, 1}, {7, 13}, {13, 7}, {33, 33}, {65, 130}, {130, 65}}) {
      // Newton–Schulz amplifies rounding by at most 3.4445⁵ = 485; elementwise steps are the same expressions, bit by
      // bit.
      const double bound = whole ? 485 * std::numeric_limits<float>::epsilon() : 0;
      EXPECT_LE(worst_error(optimizer, rows, cols, 1, {}), bound) << optimizer.name << ' ' << rows << " by " << cols;
      EXPECT_LE(worst_error(optimizer, rows, cols, 0.25f, {}), bound) << optimizer.name;
    }
  }
}

TEST(EngineOptimizers, EveryVariantOfMuonDoesOnAnyNumberOfThreads) {
  const EngineOptimizer& muon = EngineOptimizers::instance().find("muon");
  for (const std::string& variant : muon.variants) {
    for (const int threads : device_under_test::thread_counts()) {
      for (const auto& [rows, cols] :
           std::vector<std::pair<int, int>>{{1, 9}, {9, 1}, {1, 1}, {7, 13}, {33, 33}, {65, 130}, {300, 270}}) {
        EXPECT_LE(worst_error(muon, rows, cols, 1, {}, variant, threads), 485 * std::numeric_limits<float>::epsilon())
            << variant << ' ' << threads << ' ' << rows << " by " << cols;
      }
    }
  }
}

TEST(EngineOptimizers, MuonFollowsItsOptions) {
  const EngineOptimizer& muon = EngineOptimizers::instance().find("muon");
  for (const std::map<std::string, std::string>& given :
       std::vector<std::map<std::string, std::string>>{{{"momentum_form", "accumulate"}},
                                                       {{"nesterov", "off"}},
                                                       {{"eps_form", "add"}, {"eps", "1e-3"}},
                                                       {{"scale", "original"}},
                                                       {{"coefficients", "quintic"}},
                                                       {{"coefficients", "polar_express"}, {"ns_steps", "8"}}}) {
    // ∏ aᵢ of polar_express is 8.2051·4.0664·3.9096·3.2856·2.2779·1.8726·1.8564·1.875 = 6.4e3.
    EXPECT_LE(worst_error(muon, 24, 40, 1, given), 6.4e3 * std::numeric_limits<float>::epsilon());
  }
}

TEST(EngineOptimizers, AZeroGradientGivesAZeroUpdate) {
  OnDevice on;
  for (const EngineOptimizer& optimizer : EngineOptimizers::instance().all()) {
    const OptimizerDescription& description = reference::Optimizers::instance().find(optimizer.name);
    const Options options(description.options, {}, optimizer.name);
    Workspace workspace(*on.device);
    const auto own = optimizer.prepare({options, *on.device, workspace, {4, 6}, {0}});
    const MatrixOut update = on.put(random_matrix<float>(4, 6));
    const auto values = on.zeros<StepValues>(1);
    put(*on.stream, optimizer.values(options, 1, 1), values);
    own->step(*on.stream, 1, values, on.zeros<float>(24), update.data);
    EXPECT_EQ(on.get(update), (Matrix<float>::Zero(4, 6))) << optimizer.name;
  }
}

TEST(EngineOptimizers, ApplyDoesWhatTheReferenceDoes) {
  const OptimizerDescription& adamw = reference::Optimizers::instance().find("adamw");
  OnDevice on;
  for (const char* form : {"decoupled_before", "decoupled_with_step", "decoupled_after"}) {
    const Options options(adamw.options, {{"weight_decay_form", form}, {"lr", "0.3"}, {"warmup_steps", "3"}}, "adamw");
    const auto reference = adamw.make<float>(options, DType::fp32);
    Matrix<float> expected = random_matrix<float>(1, 37, 1);
    const Matrix<float> update = random_matrix<float>(1, 37, 2);
    const MatrixOut master = on.put(expected), weights = on.put<float>(Matrix<float>::Zero(1, 37));
    const auto values = on.zeros<StepValues>(1);
    for (std::int64_t step = 1; step <= 4; ++step) {
      put(*on.stream, EngineOptimizers::instance().find("adamw").values(options, step, 1), values);
      apply_update<float, float>(*on.stream, options, values, on.put(update).data, master.data, weights.data, 37);
      reference->apply(step, update.data(), expected.data(), 37);
      EXPECT_EQ(on.get(master), expected) << form;
      EXPECT_EQ(on.get(weights), expected) << form;
    }
  }
}

}  // namespace
}  // namespace canzona::optimized
