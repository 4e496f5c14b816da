// How long one simulated point takes: from a model's dimensions to its step latency.
#include "harness/record/step_record.hpp"
#include "tests/benchmark/strategies.hpp"
#include "tests/support.hpp"

namespace {

void simulate(benchmark::State& state, const std::string& strategy) {
  const canzona::harness::Point point{
      canzona::testing_support::request_of("qwen3-32b", canzona::make_mesh(state.range(0), state.range(1)), strategy)};
  canzona::harness::SimulationSettings settings;
  settings.cluster = canzona::harness::find_cluster("h100-256");
  for (auto _ : state) benchmark::DoNotOptimize(canzona::harness::simulate_point(point, settings));
}

}  // namespace

int main(int argc, char** argv) {
  return canzona::run_for_each_strategy(argc, argv, [](const std::string& strategy) {
    return benchmark::RegisterBenchmark(("simulate/qwen3-32b/" + strategy).c_str(), simulate, strategy)
        ->ArgNames({"dp", "tp"})
        ->Args({32, 8})
        ->Args({256, 1});
  });
}
