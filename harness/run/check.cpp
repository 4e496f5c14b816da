#include "harness/run/check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/run/determined.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/core/error.hpp"
#include "reference/core/parallel.hpp"
#include "reference/model/shard.hpp"

namespace canzona::harness {

using reference::DenseReference;

/// Where one device ended, how long a way each parameter went, what of it is compared and how near it has to be.
struct DenseChecks::Dense {
  std::vector<Matrix<float>> masters;  // by parameter
  std::vector<double> way;
  std::vector<Determined> determined;
  std::vector<double> bounds;
  bool is_measured = false;
};

namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

/// Between 1 and the next number of the type; fp32's at least.
double unit_of(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::fp32: return kEpsilon;
    case DType::bf16: return 0x1p-7;
    case DType::fp16: return 0x1p-10;
  }
  throw Error("no such element type");
}

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

/// The master weights behind a rank's weights, from those who own them.
std::vector<float> masters_for(const Workload& workload, const std::vector<Held>& held, int dp_rank, int tp_rank) {
  const auto masters_of = [&](int owner) -> const std::vector<float>& {
    return held[static_cast<std::size_t>(workload.mesh.rank({owner, tp_rank, 0}))].masters;
  };
  if (workload.plan.replicated()) return masters_of(dp_rank);
  std::vector<float> masters(static_cast<std::size_t>(workload.buffer.numel()));
  for (std::size_t bucket = 0; bucket < workload.buffer.buckets.size(); ++bucket) {
    for (int owner = 0; owner < workload.mesh.dp; ++owner) {
      for (const Range& range : owned_ranges(workload.plan, workload.buffer, static_cast<int>(bucket), owner))
        std::copy(masters_of(owner).begin() + range.begin, masters_of(owner).begin() + range.end,
                  masters.begin() + range.begin);
    }
  }
  return masters;
}

}  // namespace

DenseChecks::Dense DenseChecks::run(const Workload& workload, const reference::Objective<float>& objective) const {
  DenseReference<float> dense(workload, precision_, objective);
  Dense result;
  const auto count = static_cast<int>(workload.model.parameters.size());
  for (int parameter = 0; parameter < count; ++parameter) result.masters.push_back(dense.master(parameter));
  result.way.assign(static_cast<std::size_t>(count), 0);
  for (std::int64_t iteration = 0; iteration < iterations_; ++iteration) {
    dense.run(1);
    for (int parameter = 0; parameter < count; ++parameter) {
      const auto index = static_cast<std::size_t>(parameter);
      result.way[index] += norm_of(dense.master(parameter) - result.masters[index]);
      result.masters[index] = dense.master(parameter);
    }
  }
  return result;
}

const DenseChecks::Dense& DenseChecks::dense_of(const Workload& workload) {
  auto& known = runs_[workload.turns];
  if (!known) {
    known = std::make_shared<Dense>(run(workload, objective_));
    known->determined.resize(known->masters.size());
    derive_bounds(workload, *known);
  }
  return *known;
}

void DenseChecks::derive_bounds(const Workload& workload, Dense& dense) const {
  const auto& optimizer = optimized::EngineOptimizers::instance().find(workload.optimizer->name);
  const Options& options = workload.optimizer_options;
  const std::size_t count = dense.masters.size();
  const auto amplification = optimizer.amplification ? optimizer.amplification(options, variant_) : std::nullopt;
  if (amplification == 0) {  // the same expressions, the same bits
    dense.bounds.assign(count, 0);
    return;
  }
  const double unit = unit_of(precision_.arithmetic);
  const bool is_low = unit > kEpsilon;
  if (is_low && optimizer.roundings) return derive_low_bounds(workload, optimizer.roundings(options), dense);
  const bool is_closed = amplification && !is_low;
  dense.is_measured = !is_closed;
  const std::vector<Dense> disturbed = run_disturbed(workload, disturbances(workload, dense.is_measured), kEpsilon);
  double longest_of_all = 1;
  for (const Parameter& parameter : workload.model.parameters)
    longest_of_all = std::max(longest_of_all, longest_sum(parameter));
  for (std::size_t index = 0; index < count; ++index) {
    const Parameter& parameter = workload.model.parameters[index];
    const bool elementwise = parameter.routing == Routing::elementwise;
    if (is_closed && !elementwise) {
      dense.bounds.push_back(*amplification * kEpsilon);
      continue;
    }
    std::vector<Matrix<float>> responses;
    for (const Dense& other : disturbed) responses.emplace_back(other.masters[index] - dense.masters[index]);
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
    if (is_low) dense.bounds.back() += unit;  // where one rounds an update up, and the other down
  }
}

/// Where matrices are rounded to two bytes over and over, a run answers to noise of one such unit. That noise is −1, 0
/// or 1 unit, of variance 2/3; a rounding's is 1/12, an eighth of it. So many independent ones, were each felt like
/// noise in the gradient, add up to √(roundings/8) of the response. An element's own gradient never has so much.
void DenseChecks::derive_low_bounds(const Workload& workload, std::int64_t roundings, Dense& dense) const {
  dense.is_measured = true;
  const std::vector<Dense> disturbed = run_disturbed(workload, kHeldOut, unit_of(precision_.arithmetic));
  for (std::size_t index = 0; index < dense.masters.size(); ++index) {
    double response = kEpsilon;
    for (const Dense& other : disturbed) {
      const Matrix<float> difference = other.masters[index] - dense.masters[index];
      response = std::max(response, relative(norm_of(difference), dense.way[index], {}));
    }
    const bool elementwise = workload.model.parameters[index].routing == Routing::elementwise;
    dense.bounds.push_back((elementwise ? 1 : std::sqrt(static_cast<double>(roundings) / 8)) * response);
  }
}

/// Several at once: everybody else waits for them.
std::vector<DenseChecks::Dense> DenseChecks::run_disturbed(const Workload& workload, int count, double unit) const {
  std::vector<Dense> runs(static_cast<std::size_t>(count));
  for_each_in_parallel(count, [&](int index) {
    reference::Objective<float> objective = objective_;
    objective.disturb(static_cast<std::uint64_t>(index + 1), unit);
    runs[static_cast<std::size_t>(index)] = run(workload, objective);
  });
  return runs;
}

Check DenseChecks::check(const Workload& workload, const std::vector<Held>& held) {
  const Dense& dense = dense_of(workload);
  const Mesh& mesh = workload.mesh;
  Check check;
  check.passed = true;
  check.is_measured = dense.is_measured;
  double worst_ratio = -1;
  const auto note = [&](double error, std::size_t index, int dp_rank) {
    const double ratio = error == 0 ? 0 : error / dense.bounds[index];
    check.passed = check.passed && error <= dense.bounds[index];
    if (ratio <= worst_ratio) return;  // NaN is the worst
    worst_ratio = std::isnan(ratio) ? HUGE_VAL : ratio;
    check.worst_error = error;
    check.bound = dense.bounds[index];
    check.parameter = workload.model.parameters[index].name;
    check.dp_rank = dp_rank;
  };
  for (int dp_rank = 0; dp_rank < mesh.dp; ++dp_rank) {
    std::vector<std::vector<float>> masters;  // by TP rank
    for (int tp_rank = 0; tp_rank < mesh.tp; ++tp_rank)
      masters.push_back(masters_for(workload, held, dp_rank, tp_rank));
    for (const Slot& slot : workload.buffer.slots) {
      const auto index = static_cast<std::size_t>(slot.parameter);
      const Parameter& parameter = workload.model.parameters[index];
      check.compared = std::min(check.compared, dense.determined[index].share());
      Matrix<float> whole = dense.masters[index];
      bool is_rounded = true;
      for (int tp_rank = 0; tp_rank < mesh.tp; ++tp_rank) {
        const auto& own = masters[static_cast<std::size_t>(tp_rank)];
        place_shard(own.data() + slot.elements.begin, parameter, mesh.tp, tp_rank, whole);
        const auto& weights = held[static_cast<std::size_t>(mesh.rank({dp_rank, tp_rank, 0}))].weights;
        for (auto i = static_cast<std::size_t>(slot.elements.begin); i < static_cast<std::size_t>(slot.elements.end);
             ++i)
          is_rounded = is_rounded && weights[i] == round_to(precision_.wire.parameter, own[i]);
      }
      const Matrix<float> difference = whole - dense.masters[index];
      const double error = !is_rounded            ? HUGE_VAL
                           : difference.isZero(0) ? 0
                                                  : relative(dense.determined[index].norm(parameter, difference),
                                                             dense.way[index], dense.determined[index]);
      note(error, index, dp_rank);
    }
  }
  return check;
}

}  // namespace canzona::harness
