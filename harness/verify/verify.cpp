#include "harness/verify/verify.hpp"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <bit>
#include <map>
#include <mutex>

#include "reference/core/error.hpp"
#include "reference/model/split.hpp"

namespace canzona::harness {
namespace {

using reference::DenseReference;
using reference::Executor;
using reference::Precision;

/// Equal as bits: NaN equals itself, and 0 differs from −0.
bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }
bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// A difference in words, or nothing.
template <class Scalar>
std::string difference(const char* what, int rank, const std::string& parameter, const Scalar* got,
                       const Scalar* expected, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!same_bits(got[i], expected[i])) {
      return fmt::format("rank {}: {} of {} element {} is {}, one device has {}", rank, what, parameter, i, got[i],
                         expected[i]);
    }
  }
  return {};
}

template <class Scalar>
std::string compare_rank(const Executor<Scalar>& executor, const DenseReference<Scalar>& dense,
                         const Workload& workload, int index) {
  const auto& rank = executor.rank(index);
  if (rank.steps != dense.steps())
    return fmt::format("rank {} took {} steps, one device {}", index, rank.steps, dense.steps());
  if (!same_bits(rank.agreement.norm, dense.agreement().norm)) {
    return fmt::format("rank {}: the global norm is {}, one device has {}", index, rank.agreement.norm,
                       dense.agreement().norm);
  }
  std::vector<std::vector<Range>> owned;
  for (std::size_t bucket = 0; bucket < workload.buffer.buckets.size(); ++bucket) {
    owned.push_back(owned_ranges(workload.plan, workload.buffer, static_cast<int>(bucket), rank.at.dp));
  }
  std::vector<Scalar> shard;
  for (const Slot& slot : workload.buffer.slots) {
    const Parameter& parameter = workload.model.parameters[slot.parameter];
    if (!dense.master(slot.parameter).allFinite())
      return parameter.name + " is not finite on one device: nothing to compare with";
    shard.resize(static_cast<std::size_t>(slot.elements.size()));
    take_shard(dense.weights(slot.parameter), parameter, workload.mesh.tp, rank.at.tp, shard.data());
    std::string failure = difference("weight", index, parameter.name, rank.weights.data() + slot.elements.begin,
                                     shard.data(), slot.elements.size());
    if (!failure.empty()) return failure;
    take_shard(dense.master(slot.parameter), parameter, workload.mesh.tp, rank.at.tp, shard.data());
    for (const Range& range : owned[workload.buffer.bucket_of(slot.parameter)]) {
      const Range mine = intersection(range, slot.elements);
      failure = difference("master weight", index, parameter.name, rank.master.data() + mine.begin,
                           shard.data() + (mine.begin - slot.elements.begin), mine.size());
      if (!failure.empty()) return failure;
    }
  }
  return {};
}

/// Matrix-optimizer steps that a plan should cost: each block once a step, times the ranks that compute it redundantly.
std::int64_t expected_matrix_steps(const Workload& workload, std::int64_t steps) {
  std::int64_t blocks = 0;
  for (const Parameter& parameter : workload.model.parameters) {
    if (parameter.routing == Routing::matrix) blocks += static_cast<std::int64_t>(parameter.blocks.size());
  }
  const int copies = (workload.plan.replicated() ? workload.mesh.dp : 1) *
                     (workload.plan.matrix_update == MatrixUpdate::redundant ? workload.mesh.tp : 1);
  return blocks * steps * copies;
}

std::string compare_traffic(const Traffic& moved, const Workload& workload, const Precision& precision,
                            int iterations) {
  const Traffic closed_form = traffic_of(workload.plan, workload.model, workload.buffer, precision.wire);
  for (const Collective collective : kOptimizerCollectives) {
    for (int rank = 0; rank < workload.mesh.ranks(); ++rank) {
      const std::int64_t expected = closed_form.sent(collective)[rank] * iterations;
      if (moved.sent(collective)[rank] != expected) {
        return fmt::format("rank {} sent {} bytes in {}, the closed form is {}", rank, moved.sent(collective)[rank],
                           name_of(collective), expected);
      }
    }
  }
  return {};
}

template <class Scalar>
reference::Objective<Scalar> objective_of(const VerifyRequest& request) {
  reference::Objective<Scalar> objective(request.seed);
  if (request.poisoned) objective.poison(*request.poisoned, 0, 0);
  return objective;
}

/// Dense runs by what they depend on, shared by the strategies.
template <class Scalar>
class DenseRuns {
 public:
  const DenseReference<Scalar>& of(const VerifyCase& what, const Workload& workload, const Precision& precision,
                                   const VerifyRequest& request) {
    const std::lock_guard lock(mutex_);
    VerifyCase key = what;
    key.strategy.clear();
    auto& run = runs_[{key.name(), workload.turns}];
    if (!run) {
      run = std::make_unique<DenseReference<Scalar>>(workload, precision, objective_of<Scalar>(request));
      run->run(request.iterations);
    }
    return *run;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<std::vector<std::int64_t>>>, std::unique_ptr<DenseReference<Scalar>>>
      runs_;
};

template <class Scalar>
CaseResult run_case(const VerifyCase& what, const Workload& workload, const VerifyRequest& request,
                    DenseRuns<Scalar>& runs) {
  const Precision precision = reference::make_precision(what.precision, request.gradient);
  Executor<Scalar> executor(workload, precision, objective_of<Scalar>(request));
  executor.run(request.iterations);
  const DenseReference<Scalar>& dense = runs.of(what, workload, precision, request);
  return {what, compare(executor, dense, workload, precision, request.iterations), request.iterations - dense.steps(),
          dense.failed_refreshes()};
}

/// The verification options of an optimizer, and over them those given that it has.
std::map<std::string, std::string> options_of(const reference::OptimizerDescription& optimizer,
                                              const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> options = optimizer.verification;
  for (const OptionDescription& option : optimizer.options) {
    if (const auto found = given.find(option.name); found != given.end()) options[option.name] = found->second;
  }
  return options;
}

/// Bytes that running the case takes: per rank weights, seen, gradient, master and two moments; six whole models for
/// the dense run and what is in flight; and the matrices' state on every rank that computes, and on one device.
double bytes_needed(const VerifyCase& what, const Workload& workload) {
  const double scalar = what.precision == DType::fp64 ? 8 : 4;
  const double per_rank = 6 * static_cast<double>(workload.buffer.numel());
  const double whole = 6 * static_cast<double>(workload.buffer.numel()) * workload.mesh.tp;
  double state = 0;
  for (const Parameter& parameter : workload.model.parameters)
    state += static_cast<double>(workload.cost.of(parameter).state_bytes) / static_cast<double>(bytes_of(DType::fp32));
  const int copies = (workload.plan.replicated() ? workload.mesh.dp : 1) *
                     (workload.plan.matrix_update == MatrixUpdate::redundant ? workload.mesh.tp : 1);
  return scalar * (per_rank * workload.mesh.ranks() + whole + (copies + 1) * state);
}

void require_memory(const VerifyCase& what, const Workload& workload) {
  const double installed = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double needed = bytes_needed(what, workload);
  if (needed * omp_get_max_threads() > installed) {
    throw InputError("verify", fmt::format("{}, {}", workload.model.name, what.name()),
                     fmt::format("too large for this machine: {:.3g} GB of virtual ranks", needed / 1e9),
                     fmt::format("{:.3g} GB, as {} cases run at once", installed / omp_get_max_threads() / 1e9,
                                 omp_get_max_threads()));
  }
}

std::vector<VerifyCase> cases_of(const VerifyRequest& request) {
  std::vector<VerifyCase> cases;
  for (const std::string& optimizer : request.optimizers) {
    for (const Mesh& mesh : request.meshes) {
      for (const DType precision : request.precisions) {
        for (const BlockSplit& split : request.splits) {
          for (const std::string& strategy : request.strategies)
            cases.push_back({optimizer, strategy, mesh, precision, split});
        }
      }
    }
  }
  return cases;
}

}  // namespace

std::string VerifyCase::name() const {
  return fmt::format("{} {} dp {} × tp {} {} {}", optimizer, strategy, mesh.dp, mesh.tp, name_of(precision),
                     canzona::name_of(split));
}

std::vector<Mesh> standard_meshes() {
  return {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 2}, {4, 2}, {16, 1}};
}

std::size_t count_cases(const VerifyRequest& request) { return cases_of(request).size(); }

template <class Scalar>
std::string compare(const Executor<Scalar>& executor, const DenseReference<Scalar>& dense, const Workload& workload,
                    const Precision& precision, int iterations) {
  std::int64_t matrix_steps = 0;
  for (int rank = 0; rank < workload.mesh.ranks(); ++rank) {
    if (std::string failure = compare_rank(executor, dense, workload, rank); !failure.empty()) return failure;
    matrix_steps += executor.rank(rank).matrix_steps;
  }
  const std::int64_t expected = expected_matrix_steps(workload, dense.steps());
  if (matrix_steps != expected) return fmt::format("{} matrix updates, {} expected", matrix_steps, expected);
  return compare_traffic(executor.traffic(), workload, precision, iterations);
}

template std::string compare(const Executor<float>&, const DenseReference<float>&, const Workload&, const Precision&,
                             int);
template std::string compare(const Executor<double>&, const DenseReference<double>&, const Workload&, const Precision&,
                             int);

std::vector<CaseResult> verify(const VerifyRequest& request, const std::function<void()>& advance,
                               const std::function<bool()>& interrupted) {
  const std::vector<VerifyCase> cases = cases_of(request);
  // Bad input is the request's, not a case's: every workload is built before any runs.
  std::vector<Workload> workloads;
  for (const VerifyCase& what : cases) {
    WorkloadRequest workload = request.settings;
    workload.config = request.config;
    workload.mesh = what.mesh;
    workload.strategy = what.strategy;
    workload.optimizer = what.optimizer;
    workload.split = what.split;
    workload.optimizer_options =
        options_of(reference::Optimizers::instance().find(what.optimizer), request.settings.optimizer_options);
    workloads.push_back(make_workload(workload));
    require_memory(what, workloads.back());
  }
  DenseRuns<float> float_runs;
  DenseRuns<double> double_runs;
  std::vector<std::optional<CaseResult>> results(cases.size());
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t index = 0; index < cases.size(); ++index) {
    if (interrupted()) continue;
    try {
      results[index] = cases[index].precision == DType::fp64
                           ? run_case(cases[index], workloads[index], request, double_runs)
                           : run_case(cases[index], workloads[index], request, float_runs);
    } catch (const std::exception& error) {
      results[index] = CaseResult{cases[index], error.what()};
    }
    advance();
  }
  std::vector<CaseResult> finished;
  for (auto& result : results) {
    if (result) finished.push_back(std::move(*result));
  }
  return finished;
}

}  // namespace canzona::harness
