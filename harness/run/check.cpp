#include "harness/run/check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/run/determined.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/model/shard.hpp"

namespace canzona::harness {

using reference::DenseReference;

/// Where one device ended, how long a way each parameter went, what of it is compared and how near it has to be.
struct DenseChecks::Dense {
  std::vector<Matrix<float>> weights;  // by parameter
  std::vector<double> way;
  std::vector<Determined> determined;
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

/// Relative to what is compared of the way.
double relative(double norm, double way, const Determined& determined) {
  return norm == 0 ? 0 : norm / (way * std::sqrt(determined.share()));
}

/// Disturbed runs that only say how what is compared responds.
constexpr int kHeldOut = 3;

/// How many disturbed runs there have to be: where they find what is undetermined too, each shows as many directions of
/// a block as its shorter side has.
int disturbances(const Workload& workload, bool find_undetermined) {
  std::int64_t most = 0;
  for (const Parameter& parameter : workload.model.parameters) {
    if (!find_undetermined || parameter.routing == Routing::elementwise) continue;
    for (const Block& block : parameter.blocks) {
      const Shape shape = parameter.block_shape(block);
      most = std::max(most, (shape.longer() + shape.shorter() - 1) / shape.shorter());
    }
  }
  constexpr std::int64_t kMost = 16;
  return static_cast<int>(std::min(most, kMost)) + kHeldOut;
}

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
  if (!known) {
    known = std::make_shared<Dense>(run(workload, objective_));
    known->determined.resize(known->weights.size());
    derive_bounds(workload, *known);
  }
  return *known;
}

void DenseChecks::derive_bounds(const Workload& workload, Dense& dense) const {
  const auto& amplification = optimized::EngineOptimizers::instance().find(workload.optimizer->name).amplification;
  const std::size_t count = dense.weights.size();
  if (amplification &&
      amplification(workload.optimizer_options, variant_) == 0) {  // the same expressions, the same bits
    dense.bounds.assign(count, 0);
    return;
  }
  dense.is_measured = !amplification;
  std::vector<Dense> disturbed;
  for (int seed = 1; seed <= disturbances(workload, dense.is_measured); ++seed) {
    reference::Objective<float> objective = objective_;
    objective.disturb(static_cast<std::uint64_t>(seed));
    disturbed.push_back(run(workload, objective));
  }
  double longest_of_all = 1;
  for (const Parameter& parameter : workload.model.parameters)
    longest_of_all = std::max(longest_of_all, longest_sum(parameter));
  for (std::size_t index = 0; index < count; ++index) {
    const Parameter& parameter = workload.model.parameters[index];
    const bool elementwise = parameter.routing == Routing::elementwise;
    if (amplification && !elementwise) {
      dense.bounds.push_back(amplification(workload.optimizer_options, variant_) * kEpsilon);
      continue;
    }
    std::vector<Matrix<float>> responses;
    for (const Dense& other : disturbed) responses.emplace_back(other.weights[index] - dense.weights[index]);
    // The last ones do not choose what is compared: they say how it responds.
    const std::vector<Matrix<float>> last(responses.end() - kHeldOut, responses.end());
    responses.resize(responses.size() - kHeldOut);
    Determined& determined = dense.determined[index];
    if (!elementwise) determined = Determined(parameter, responses, dense.way[index]);
    double response = kEpsilon;
    for (const Matrix<float>& own : last)
      response = std::max(response, relative(determined.norm(parameter, own), dense.way[index], determined));
    // Rounding in a product of inner length k grows like √k (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815). It
    // reaches elements too, by way of the global norm.
    dense.bounds.push_back(std::sqrt(elementwise ? longest_of_all : longest_sum(parameter)) * response);
  }
}

Check DenseChecks::check(const Workload& workload, const std::vector<std::vector<float>>& weights) {
  const Dense& dense = dense_of(workload);
  const Mesh& mesh = workload.mesh;
  Check check;
  check.passed = true;
  check.is_measured = dense.is_measured;
  double worst_ratio = -1;
  for (const Slot& slot : workload.buffer.slots) {
    const auto index = static_cast<std::size_t>(slot.parameter);
    const Parameter& parameter = workload.model.parameters[index];
    check.compared = std::min(check.compared, dense.determined[index].share());
    for (int dp_rank = 0; dp_rank < mesh.dp; ++dp_rank) {
      Matrix<float> whole = dense.weights[index];
      for (int tp_rank = 0; tp_rank < mesh.tp; ++tp_rank) {
        const auto rank = static_cast<std::size_t>(mesh.rank({dp_rank, tp_rank, 0}));
        place_shard(weights[rank].data() + slot.elements.begin, parameter, mesh.tp, tp_rank, whole);
      }
      const Matrix<float> difference = whole - dense.weights[index];
      const bool same = difference.isZero(0);
      const double error = same ? 0
                                : relative(dense.determined[index].norm(parameter, difference), dense.way[index],
                                           dense.determined[index]);
      const double ratio = error == 0 ? 0 : error / dense.bounds[index];
      check.passed = check.passed && error <= dense.bounds[index];
      if (ratio <= worst_ratio) continue;  // NaN is the worst
      worst_ratio = std::isnan(ratio) ? HUGE_VAL : ratio;
      check.worst_error = error;
      check.bound = dense.bounds[index];
      check.parameter = parameter.name;
      check.dp_rank = dp_rank;
    }
  }
  return check;
}

}  // namespace canzona::harness
