// canzona run: strategies on real ranks, measured and held against one device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "harness/check/check.hpp"
#include "harness/check/sample.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/run/timing.hpp"
#include "optimized/device/ledger.hpp"
#include "optimized/engine/backend.hpp"

namespace canzona::harness {

struct RunRequest {
  std::vector<Point> points;  ///< one a strategy; they share model, mesh and optimizer
  optimized::EngineSettings engine;
  optimized::ChosenBackend backend;
  std::int64_t steps = 10;  ///< measured, of every strategy
  std::int64_t warmup = 1;  ///< turns before the first that is measured
  std::optional<CheckRequest> check = {};
  bool predicts_itself = false;  ///< figures for a prediction are measured between its turns
  std::uint64_t seed = 1;
};

/// Strategies take turns, so that what disturbs the machine disturbs all of them. A turn is one iteration that is not
/// measured, since it has nothing to overlap with, and then a whole period of the optimizer's refreshes.
struct Interleaving {
  std::int64_t measured = 1;  ///< iterations in a turn
  std::int64_t count = 1;     ///< turns that are measured
  std::int64_t warmup = 1;

  std::int64_t iterations() const { return (warmup + count) * (1 + measured); }  ///< of one strategy in all
};
Interleaving interleaving_of(const RunRequest& request, std::int64_t refresh_period);

/// What became of one strategy.
struct StrategyRun {
  Workload workload;
  std::vector<Timeline> turns;  ///< those measured; iteration 0 of each is not
  Traffic traffic;              ///< of all iterations
  std::int64_t iterations = 0;
  std::int64_t skipped = 0;
  std::int64_t matrix_steps = 0;  ///< of all ranks
  std::int64_t failed_refreshes = 0;
  std::vector<optimized::Ledger> memory;  ///< by rank
  std::optional<Check> check;
};

/// Builds the workloads; throws InputError on what is not allowed.
std::vector<Workload> workloads_of(const RunRequest& request);

/// Why the ranks' engines do not fit into their memory, with the numbers; empty where they do. All ranks call, and
/// learn the same.
std::string misfit(optimized::Rank& rank, const RunRequest& request, const std::vector<Workload>& workloads);

/// What happens while strategies run.
struct RunHooks {
  std::function<void()> before_turn = [] {};  ///< on every rank, before all strategies take a turn that is measured
  std::function<void()> advance = [] {};      ///< on rank 0, after each turn of a strategy
  std::function<bool()> interrupted = [] { return false; };  ///< on any rank: all stop after a whole turn
};

/// Runs on this rank what all ranks run. Rank 0 gets the results, the others nothing.
std::vector<StrategyRun> run_rank(optimized::Rank& rank, const RunRequest& request,
                                  const std::vector<Workload>& workloads, const RunHooks& hooks);

}  // namespace canzona::harness
