#include "harness/run/check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optimized/optimizers/optimizer.hpp"
#include "reference/model/shard.hpp"

namespace canzona::harness {

using reference::DenseReference;

/// Where one device ended, how long a way each parameter went, and how far one rounding of the gradients can turn it.
struct DenseChecks::Dense {
  std::vector<Matrix<float>> weights;  // by parameter
  std::vector<double> way;
  std::vector<double> bounds;
  bool is_measured = false;
};

namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

/// The longest inner dimension of a product in an update of the parameter: a longer side of a block.
double longest_sum(const Parameter& parameter) {
  std::int64_t longest = 1;
  for (const Block& block : parameter.blocks) longest = std::max(longest, parameter.block_shape(block).longer());
  return static_cast<double>(longest);
}

double norm_of(const Matrix<float>& matrix) { return matrix.cast<double>().norm(); }

}  // namespace

DenseChecks::Dense DenseChecks::run(const Workload& workload, const reference::Objective<float>& objective) const {
  DenseReference<float> dense(workload, reference::make_precision(DType::fp32, gradient_), objective);
  Dense result;
  const auto count = static_cast<int>(workload.model.parameters.size());
  for (int parameter = 0; parameter < count; ++parameter) result.weights.push_back(dense.weights(parameter));
  result.way.assign(static_cast<std::size_t>(count), 0);
  for (std::int64_t iteration = 0; iteration < iterations_; ++iteration) {
    dense.run(1);
    for (int parameter = 0; parameter < count; ++parameter) {
      const auto index = static_cast<std::size_t>(parameter);
      result.way[index] += norm_of(dense.weights(parameter) - result.weights[index]);
      result.weights[index] = dense.weights(parameter);
    }
  }
  return result;
}

const DenseChecks::Dense& DenseChecks::dense_of(const Workload& workload) {
  auto& known = runs_[workload.turns];
  if (known) return *known;
  known = std::make_shared<Dense>(run(workload, objective_));
  const auto& own = optimized::EngineOptimizers::instance().find(workload.optimizer->name);
  const auto& elements = optimized::EngineOptimizers::instance().find("adamw");
  known->is_measured = !own.amplification;
  std::vector<Dense> disturbed;
  for (const std::uint64_t seed :
       known->is_measured ? std::vector<std::uint64_t>{1, 2, 3} : std::vector<std::uint64_t>{}) {
    reference::Objective<float> objective = objective_;
    objective.disturb(seed);
    disturbed.push_back(run(workload, objective));
  }
  for (std::size_t index = 0; index < known->weights.size(); ++index) {
    const Parameter& parameter = workload.model.parameters[index];
    if (parameter.routing == Routing::elementwise) {
      known->bounds.push_back(elements.amplification({}) * kEpsilon);
    } else if (own.amplification) {
      known->bounds.push_back(own.amplification(workload.optimizer_options) * kEpsilon);
    } else {
      double response = kEpsilon;
      for (const Dense& other : disturbed)
        response = std::max(response, norm_of(other.weights[index] - known->weights[index]) / known->way[index]);
      // Rounding in a product of inner length k grows like √k (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815).
      known->bounds.push_back(std::sqrt(longest_sum(parameter)) * response);
    }
  }
  return *known;
}

Check DenseChecks::check(const Workload& workload, const std::vector<std::vector<float>>& weights) {
  const Dense& dense = dense_of(workload);
  Check check;
  check.passed = true;
  check.is_measured = dense.is_measured;
  double worst_ratio = -1;
  std::vector<float> shard;
  for (const Slot& slot : workload.buffer.slots) {
    const auto index = static_cast<std::size_t>(slot.parameter);
    const Parameter& parameter = workload.model.parameters[index];
    shard.resize(static_cast<std::size_t>(slot.elements.size()));
    for (int rank = 0; rank < workload.mesh.ranks(); ++rank) {
      take_shard(dense.weights[index], parameter, workload.mesh.tp, workload.mesh.coordinate(rank).tp, shard.data());
      double squares = 0;
      for (std::size_t i = 0; i < shard.size(); ++i) {
        const double difference =
            static_cast<double>(
                weights[static_cast<std::size_t>(rank)][static_cast<std::size_t>(slot.elements.begin) + i]) -
            static_cast<double>(shard[i]);
        squares += difference * difference;
      }
      // A shard carries its part of the way.
      const double share =
          std::sqrt(static_cast<double>(slot.elements.size()) / static_cast<double>(parameter.shape.numel()));
      const double way = dense.way[index] * share;
      const double error = squares == 0 ? 0 : std::sqrt(squares) / way;
      const double bound = dense.bounds[index];
      const double ratio = error == 0 ? 0 : error / bound;
      check.passed = check.passed && error <= bound;
      if (ratio <= worst_ratio) continue;  // NaN is the worst
      worst_ratio = std::isnan(ratio) ? HUGE_VAL : ratio;
      check.worst_error = error;
      check.bound = bound;
      check.parameter = parameter.name;
      check.rank = rank;
    }
  }
  return check;
}

}  // namespace canzona::harness
