#include "harness/check/target.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness/check/device_optimizer.hpp"
#include "optimized/host/host_device.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/core/error.hpp"
#include "reference/core/parallel.hpp"

namespace canzona::harness {

using reference::DenseReference;
using reference::Excerpt;
using reference::Objective;

/// By parameter; nothing of those that were not trained.
struct Targets::Run {
  std::vector<Matrix<float>> masters;
  std::vector<double> way;
};

namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

/// Disturbed runs that only say how what is compared responds.
constexpr int kHeldOut = 3;

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

bool is_low(DType type) { return unit_of(type) > kEpsilon; }

/// The longest inner dimension of a product in an update of the parameter: a longer side of a block.
double longest_sum(const Parameter& parameter) {
  std::int64_t longest = 1;
  for (const Block& block : parameter.blocks) longest = std::max(longest, parameter.block_shape(block).longer());
  return static_cast<double>(longest);
}

double longest_sum(const Model& model) {
  double longest = 1;
  for (const Parameter& parameter : model.parameters) longest = std::max(longest, longest_sum(parameter));
  return longest;
}

double norm_of(const Matrix<float>& matrix) { return matrix.cast<double>().norm(); }

const optimized::EngineOptimizer& engine_optimizer(const Workload& workload) {
  return optimized::EngineOptimizers::instance().find(workload.optimizer->name);
}

std::vector<int> all_of(const Model& model) {
  std::vector<int> parameters(model.parameters.size());
  std::iota(parameters.begin(), parameters.end(), 0);
  return parameters;
}

}  // namespace

double Target::relative(double norm) const { return norm == 0 ? 0 : norm / (way * std::sqrt(determined.share())); }

const std::vector<Target>& Targets::of(const Workload& workload) {
  auto& known = known_[workload.turns];
  if (known.empty()) known = by_reference(workload, all_of(workload.model), {});
  return known;
}

Target Targets::of(const Workload& workload, int parameter, const std::vector<Agreement>& agreements) const {
  return std::move(by_reference(workload, {parameter}, Excerpt{{parameter}, agreements}).front());
}

Target Targets::on_device(const Workload& workload, int parameter, const std::vector<Agreement>& agreements,
                          optimized::Device& device) const {
  const Excerpt excerpt{{parameter}, agreements};
  const auto optimizer_in = [&](DType arithmetic) {
    return harness::on_device(*workload.optimizer, device, arithmetic);
  };
  const reference::OptimizerDescription in_fp64 = optimizer_in(DType::fp64), in_fp32 = optimizer_in(DType::fp32);
  Workload exact = workload, rounding = workload;
  exact.optimizer = &in_fp64;
  rounding.optimizer = &in_fp32;
  // Ranks in fp32 answer to noise as fp32 does, which adds its own; fp64 may answer with a thirtieth of that.
  const bool answers_in_fp32 = source_of(workload, workload.model.parameters[parameter]) == Source::response;
  Run undisturbed = run(exact, objective_, excerpt);
  const Run answering = answers_in_fp32 ? run(rounding, objective_, excerpt) : undisturbed;
  const std::vector<Run> disturbed = disturbed_runs(answers_in_fp32 ? rounding : exact, {parameter}, excerpt, false);
  Target target{std::move(undisturbed.masters[parameter]), undisturbed.way[parameter], {}, 0, false};
  derive_bound(workload, parameter, answering, disturbed, device, target);
  return target;
}

bool Targets::has_fp64_on_device(const Workload& workload, int parameter) const {
  return workload.model.parameters[parameter].routing == Routing::matrix && engine_optimizer(workload).has_fp64;
}

std::int64_t Targets::bytes_on_device(const Workload& workload, int parameter, optimized::Device& device) const {
  const Parameter& own = workload.model.parameters[parameter];
  std::int64_t steps = 0;
  for (const Block& block : own.blocks)
    steps += harness::bytes_on_device(*workload.optimizer, workload.optimizer_options, own.block_shape(block), device);
  if (source_of(workload, own) != Source::response) return steps;
  return std::max(steps, Determined::bytes_on_device(own, device));
}

double Targets::flops_of_cores(const Workload& workload, int parameter, By by) const {
  constexpr double kPerNumber = 20;  // of random_normal
  const Parameter& own = workload.model.parameters[parameter];
  const auto iterations = static_cast<double>(iterations_);
  const bool is_response = own.routing == Routing::matrix && source_of(workload, own) == Source::response;
  // On a device responses are to a run in fp32 beside the target's.
  const double runs = 1 + disturbances(workload, {parameter}) + (is_response && by == By::device ? 1 : 0);
  double flops = kPerNumber * static_cast<double>(own.shape.numel()) * workload.mesh.dp * workload.training.batch *
                 iterations * runs;
  if (by == By::reference) {
    const std::int64_t step = workload.cost.of(own).flops + workload.cost.refresh_of(own).flops;
    flops += static_cast<double>(step) * iterations * runs;
  }
  if (!is_response) return flops;
  for (const Block& block : own.blocks) {  // what is determined of it
    const auto longer = static_cast<double>(own.block_shape(block).longer());
    const auto shorter = static_cast<double>(own.block_shape(block).shorter());
    const double product = 2 * longer * longer * shorter;
    flops += (kHeldOut + 1) * product;  // of what differs and the directions
    // A second moment and its eigenvectors (Golub and Van Loan, 8.3).
    if (by == By::reference) flops += runs * product + 25 * longer * longer * longer;
  }
  return flops;
}

Targets::Source Targets::source_of(const Workload& workload, const Parameter& parameter) const {
  const optimized::EngineOptimizer& optimizer = engine_optimizer(workload);
  const auto amplification =
      optimizer.amplification ? optimizer.amplification(workload.optimizer_options, variant_) : std::nullopt;
  if (amplification == 0) return Source::same_bits;
  if (is_low(precision_.arithmetic) && optimizer.roundings) return Source::roundings;
  const bool is_closed = amplification && !is_low(precision_.arithmetic) && parameter.routing == Routing::matrix;
  return is_closed ? Source::closed_form : Source::response;
}

/// How many disturbed runs there have to be: where they find what is undetermined too, each shows as many directions of
/// a block as its shorter side has.
int Targets::disturbances(const Workload& workload, const std::vector<int>& parameters) const {
  int count = 0;
  for (const int index : parameters) {
    const Parameter& parameter = workload.model.parameters[index];
    const Source source = source_of(workload, parameter);
    if (source == Source::same_bits || source == Source::closed_form) continue;
    std::int64_t most = 0;
    if (source == Source::response && parameter.routing == Routing::matrix) {
      for (const Block& block : parameter.blocks) {
        const Shape shape = parameter.block_shape(block);
        most = std::max(most, (shape.longer() + shape.shorter() - 1) / shape.shorter());
      }
    }
    constexpr std::int64_t kMost = 16;
    count = std::max(count, static_cast<int>(std::min(most, kMost)) + kHeldOut);
  }
  return count;
}

Targets::Run Targets::run(const Workload& workload, const Objective<float>& objective,
                          const std::optional<Excerpt>& excerpt) const {
  DenseReference<float> dense(workload, precision_, objective, excerpt);
  const auto count = static_cast<int>(workload.model.parameters.size());
  Run result;
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

/// `at_once`: they share the cores, since everybody else waits for them.
std::vector<Targets::Run> Targets::disturbed_runs(const Workload& workload, const std::vector<int>& parameters,
                                                  const std::optional<Excerpt>& excerpt, bool at_once) const {
  const bool rounds = source_of(workload, workload.model.parameters[parameters.front()]) == Source::roundings;
  std::vector<Run> disturbed(static_cast<std::size_t>(disturbances(workload, parameters)));
  const auto run_disturbed = [&](int index) {
    Objective<float> objective = objective_;
    objective.disturb(static_cast<std::uint64_t>(index + 1), rounds ? unit_of(precision_.arithmetic) : kEpsilon);
    disturbed[static_cast<std::size_t>(index)] = run(workload, objective, excerpt);
  };
  const int count = static_cast<int>(disturbed.size());
  if (at_once) {
    for_each_in_parallel(count, run_disturbed);
  } else {
    for (int index = 0; index < count; ++index) run_disturbed(index);
  }
  return disturbed;
}

std::vector<Target> Targets::by_reference(const Workload& workload, const std::vector<int>& parameters,
                                          const std::optional<Excerpt>& excerpt) const {
  const Run undisturbed = run(workload, objective_, excerpt);
  const std::vector<Run> disturbed = disturbed_runs(workload, parameters, excerpt, true);
  const std::unique_ptr<optimized::Device> cores = optimized::make_host_device();
  std::vector<Target> targets;
  for (const int parameter : parameters) {
    const auto index = static_cast<std::size_t>(parameter);
    Target& target = targets.emplace_back();
    target.master = undisturbed.masters[index];
    target.way = undisturbed.way[index];
    derive_bound(workload, parameter, undisturbed, disturbed, *cores, target);
  }
  return targets;
}

/// `undisturbed`: what the disturbed runs are disturbed from.
void Targets::derive_bound(const Workload& workload, int index, const Run& undisturbed,
                           const std::vector<Run>& disturbed, optimized::Device& device, Target& target) const {
  const Parameter& parameter = workload.model.parameters[index];
  const bool elementwise = parameter.routing == Routing::elementwise;
  const optimized::EngineOptimizer& optimizer = engine_optimizer(workload);
  const Options& options = workload.optimizer_options;
  const Source source = source_of(workload, parameter);
  target.is_measured = source == Source::roundings || source == Source::response;
  if (source == Source::same_bits) return;
  if (source == Source::closed_form) {
    target.bound = optimizer.amplification(options, variant_).value() * kEpsilon;
    return;
  }
  std::vector<Matrix<float>> responses;
  for (const Run& other : disturbed) responses.emplace_back(other.masters[index] - undisturbed.masters[index]);
  // The last ones do not choose what is compared: they say how it responds.
  const auto last = responses.end() - kHeldOut;
  if (source == Source::response && !elementwise)
    target.determined = Determined(parameter, {responses.begin(), last}, target.way, device);
  double response = kEpsilon;
  for (auto own = last; own != responses.end(); ++own) {
    const double relative = target.relative(target.determined.norm(parameter, *own));
    response = std::isnan(relative) ? relative : std::max(response, relative);  // NaN stays: no error is within it
  }
  if (source == Source::roundings) {
    // Where matrices are rounded to two bytes over and over, a run answers to noise of one such unit. That noise is −1,
    // 0 or 1 unit, of variance 2/3; a rounding's is 1/12, an eighth of it. So many independent ones, were each felt
    // like noise in the gradient, add up to √(roundings/8) of the response. An element's own gradient never has so
    // much.
    const auto roundings = static_cast<double>(optimizer.roundings(options));
    target.bound = (elementwise ? 1 : std::sqrt(roundings / 8)) * response;
    return;
  }
  // Rounding in a product of inner length k grows like √k (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815). It
  // reaches elements too, by way of the global norm.
  target.bound = std::sqrt(elementwise ? longest_sum(workload.model) : longest_sum(parameter)) * response;
  if (is_low(precision_.arithmetic))
    target.bound += unit_of(precision_.arithmetic);  // one rounds an update up, and the other down
}

}  // namespace canzona::harness
