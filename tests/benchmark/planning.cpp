// How long planning takes: from a model's dimensions to a validated plan.
#include "tests/benchmark/strategies.hpp"
#include "tests/support.hpp"

namespace {

void plan(benchmark::State& state, const std::string& strategy) {
  const canzona::WorkloadRequest request =
      canzona::testing_support::request_of("qwen3-32b", canzona::make_mesh(state.range(0), state.range(1)), strategy);
  for (auto _ : state) benchmark::DoNotOptimize(canzona::make_workload(request));
}

}  // namespace

int main(int argc, char** argv) {
  return canzona::run_for_each_strategy(argc, argv, [](const std::string& strategy) {
    return benchmark::RegisterBenchmark(("plan/qwen3-32b/" + strategy).c_str(), plan, strategy)
        ->ArgNames({"dp", "tp"})
        ->Args({32, 8})
        ->Args({256, 1})
        ->Args({2048, 8});
  });
}
