// Runs of the engine's optimizers beside their references. How far they may part follows from how far the reference
// parts from itself when its gradients are off by one unit in the last place.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "optimized/engine/captured_work.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized::trials {

using testing_support::random_matrix;

using Given = std::map<std::string, std::string>;
using Matrices = std::vector<Matrix<float>>;

inline constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

inline Given with(Given given, const Given& more) {
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
  std::string variant = {};  ///< of the engine
  int products = 1;          ///< of matrices, one upon another, in one update
  DType arithmetic = DType::fp32;

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

inline std::ostream& operator<<(std::ostream& out, const Trial& trial) {
  out << trial.optimizer << ' ' << trial.shape.rows << " by " << trial.shape.cols << ' ' << trial.variant;
  for (const auto& [name, value] : trial.given) out << ' ' << name << '=' << value;
  return out;
}

inline Matrices reference_updates(const Trial& trial, const Matrices& gradients, std::int64_t turn = 0) {
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
      : optimizer_(EngineOptimizers::instance().find(trial.optimizer)),
        options_(reference::Optimizers::instance().find(trial.optimizer).options, trial.given, trial.optimizer),
        shape_{trial.shape.rows * static_cast<std::int64_t>(turns.size()), trial.shape.cols},
        own_(optimizer_.prepare(
            {options_, *device_, workspace_, trial.shape, std::move(turns), trial.variant, trial.arithmetic})),
        values_(device_->allocate(sizeof(StepValues))),
        gradient_(device_->allocate_elements<float>(shape_.numel())),
        update_(device_->allocate_elements<float>(shape_.numel())) {}

  Matrix<float> step(const Matrix<float>& gradient, float factor = 1) {
    const std::int64_t allocations = device_->allocations();
    Matrix<float> update(shape_.rows, shape_.cols);
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(update.size());
    device_->copy(*stream_, gradient.data(), gradient_.as<float>().raw(), bytes);
    put(*stream_, optimizer_.values(options_, ++steps_, factor), values_.as<StepValues>());
    const auto work = [&] {
      own_->step(*stream_, steps_, values_.as<const StepValues>(), gradient_.as<float>(), update_.as<float>());
    };
    captures_ ? captured_.run(*stream_, own_->form(steps_), work) : work();
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
  /// From now on, steps are launched as graphs once they have settled.
  void capture() { captures_ = true; }

 private:
  std::unique_ptr<Device> device_ = device_under_test::make_device();
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  Workspace workspace_{*device_};
  const EngineOptimizer& optimizer_;
  Options options_;
  Shape shape_;
  std::unique_ptr<MatrixOptimizer> own_;
  CapturedWork captured_;
  bool captures_ = false;
  std::int64_t steps_ = 0;
  Buffer values_;
  Buffer gradient_;
  Buffer update_;
};

/// The worst ‖U − V‖/‖V‖ over steps; where V is zero, so must U be.
inline double worst_error(const Matrices& got, const Matrices& expected) {
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
inline Matrices disturbed(Matrices gradients, std::uint64_t seed) {
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    const std::uint64_t key = random_key({seed, step});
    for (std::int64_t i = 0; i < gradients[step].size(); ++i) {
      const auto unit = static_cast<double>(mix_bits(key + static_cast<std::uint64_t>(i)) % 3) - 1;
      gradients[step].data()[i] *= static_cast<float>(1 + kEpsilon * unit);
    }
  }
  return gradients;
}

/// √(p·k)·r: r is the worst relative response of the reference to noise of one unit in the last place of its input, in
/// three draws, and never taken below that unit. The rounding of products of inner length k, k at most the longer side,
/// p of them upon another, is with high probability no more than √(p·k) such units (Higham, Mary, SIAM J. Sci. Comput.
/// 41(5), 2019, A2815).
inline double derived_bound(const Trial& trial, const Matrices& gradients, std::int64_t turn = 0) {
  const Matrices undisturbed = reference_updates(trial, gradients, turn);
  double response = kEpsilon;
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    response = std::max(response, worst_error(reference_updates(trial, disturbed(gradients, seed), turn), undisturbed));
  return std::sqrt(static_cast<double>(trial.products * std::max(trial.shape.rows, trial.shape.cols))) * response;
}

/// Above this a bound would let pass what is simply another matrix.
inline constexpr double kMeaningful = 1e-2;

/// The engine's updates of one matrix, held against the reference's.
inline Matrices expect_equal(const Trial& trial, const Matrices& gradients, std::int64_t turn = 0) {
  const double bound = derived_bound(trial, gradients, turn);
  EXPECT_LT(bound, kMeaningful) << trial << ": this trial determines nothing";
  Matrices updates = EngineRun(trial, {turn}).steps(gradients);
  const double error = worst_error(updates, reference_updates(trial, gradients, turn));
  EXPECT_LE(error, bound) << trial << " turn " << turn;
  return updates;
}
inline void expect_equal(const Trial& trial) { expect_equal(trial, trial.gradients()); }

inline const std::vector<Shape>& breaking_shapes() {
  static const std::vector<Shape> shapes{{1, 9}, {9, 1}, {1, 1}, {7, 13}, {13, 7}, {33, 33}, {65, 130}, {130, 65}};
  return shapes;
}

}  // namespace canzona::optimized::trials
