// The thread sanitizer sees what the engine forgets on its streams. Each fault is planted in a process of its own,
// which has to end with the sanitizer's report.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cuda/cuda_device.hpp"
#include "optimized/device/functors.hpp"
#include "optimized/device/launch.hpp"
#include "optimized/engine/engine.hpp"
#include "optimized/engine/threads.hpp"
#include "reference/core/error.hpp"
#include "tests/backend.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

constexpr int kRaceFound = 66;  // the sanitizer's exit code
constexpr std::int64_t kElements = 64;

/// One stream fills what another copies. `waits`: the second waits for the first, `waits_again`: before it fills again,
/// the first waits for the second.
void fill_and_copy(bool waits, bool waits_again) {
  emulated_gpu::reset({});
  CudaDevice device(0, {});
  const auto producer = device.make_stream(), consumer = device.make_stream();
  const auto made = device.make_event(), taken = device.make_event();
  const Buffer source = device.allocate_elements<float>(kElements), target = device.allocate_elements<float>(kElements);
  for (int round = 0; round < 2; ++round) {
    launch(*producer, kElements, Fill<float>{1, source.as<float>().raw()});
    producer->record(*made);
    if (waits) consumer->wait(*made);
    device.copy(*consumer, source.as<float>().raw(), target.as<float>().raw(), kElements * sizeof(float));
    consumer->record(*taken);
    if (waits_again) producer->wait(*taken);
  }
  consumer->synchronize();
  producer->synchronize();
}

Workload workload() {
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {2, 2}, "canzona", "muon");
  request.bucket_size = 32768;
  request.strategy_options = {{"capacity", "1"}};
  return make_workload(request);
}

/// A wait of one stream for another: the step that waits, and what it waits for.
using Wait = std::pair<std::string, std::string>;

/// Where activations are reduced, TP's stream waits for them and compute's for their sum.
void add_waits_inside(const Workload& own, const Action& action, std::vector<Wait>& all) {
  const auto add = [&](int layer, std::vector<LayerOperation> LayerWork::*operations) {
    const Tokens tokens = EngineSettings{}.tokens;
    const LayerWork work = layer_work(own.model, layer, own.mesh.tp, tokens.count, tokens.sequence);
    for (const LayerOperation& operation : work.*operations) {
      if (!std::holds_alternative<ReduceActivations>(operation)) continue;
      all.emplace_back(describe(action), "activations");
      all.emplace_back(describe(action), "their sum");
    }
  };
  if (const auto* forward = std::get_if<Forward>(&action)) add(forward->layer, &LayerWork::forward);
  if (const auto* backward = std::get_if<Backward>(&action)) add(backward->layer, &LayerWork::backward);
}

/// Those of rank 0 in an iteration, in their order.
std::vector<Wait> waits() {
  const Workload own = workload();
  const Schedule schedule = make_schedule(own.plan, own.model, own.buffer, 0);
  std::vector<Wait> all;
  for (const Step& step : schedule.steps) {
    const auto add = [&](int awaited) {
      all.emplace_back(describe(step.action), describe(schedule.steps[awaited].action));
    };
    for (const int awaited : step.waits_for) {
      if (schedule.steps[awaited].stream != step.stream) add(awaited);
    }
    for (const int awaited : step.waits_for_previous) add(awaited);
    add_waits_inside(own, step.action, all);
  }
  return all;
}

/// The first wait, in the second iteration, of a step of one kind for one of another.
int place_of(const std::string& kind, const std::string& awaited) {
  const auto all = waits();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& wait) {
    return wait.first.starts_with(kind) && wait.second.starts_with(awaited);
  });
  if (found == all.end()) throw Error("no " + kind + " waits for " + awaited);
  return static_cast<int>(all.size() + static_cast<std::size_t>(found - all.begin()));
}

/// Two iterations of the engine on four ranks, of which the first forgets a wait.
void train(int forgotten) {
  const Workload own = workload();
  reference::Objective<float> objective(1);
  objective.recur(1);
  const ChosenBackend backend = testing_support::backend();
  if (forgotten >= 0) emulated_gpu::forget_waits(forgotten);
  run_on_threads(own.mesh, 60, backend, [&](Rank& rank) {
    auto& engine = rank.make<Engine>(own, rank, objective, EngineSettings{});
    for (int iteration = 0; iteration < 2; ++iteration) engine.iterate();
    engine.finish();
  });
}

class Races : public ::testing::Test {
 protected:
  Races() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(Races, AreSeenWhereAStreamDoesNotWait) {
  EXPECT_EXIT((fill_and_copy(true, true), std::exit(0)), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT((fill_and_copy(false, true), std::exit(0)), ::testing::ExitedWithCode(kRaceFound), "data race");
  EXPECT_EXIT((fill_and_copy(true, false), std::exit(0)), ::testing::ExitedWithCode(kRaceFound), "data race");
}

TEST_F(Races, ArePlantedAmongAllWaitsOfTheEngine) {
  constexpr int kMany = 1 << 20;
  train(kMany);
  EXPECT_EQ(kMany - emulated_gpu::waits_before_forgotten(), static_cast<std::int64_t>(2 * waits().size()));
}

TEST_F(Races, AreSeenWhereTheEngineForgetsAWait) {
  EXPECT_EXIT((train(-1), std::exit(0)), ::testing::ExitedWithCode(0), "");
  const auto expect_race = [](const std::string& kind, const std::string& awaited) {
    EXPECT_EXIT((train(place_of(kind, awaited)), std::exit(0)), ::testing::ExitedWithCode(kRaceFound), "data race")
        << kind << " does not wait for " << awaited;
  };
  expect_race("ReduceGradients", "Backward");
  expect_race("Update", "GatherShards");
  expect_race("ScatterUpdates", "Update");
  expect_race("Apply", "ScatterUpdates");
  expect_race("GatherParameters", "Apply");
  expect_race("Forward(1)", "GatherParameters(0)");
  expect_race("Forward(1)", "activations");
}

}  // namespace
}  // namespace canzona::optimized
