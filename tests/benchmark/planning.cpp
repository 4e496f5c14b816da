// How long planning takes: from a model's dimensions to a validated plan.
#include <benchmark/benchmark.h>

#include "tests/support.hpp"

namespace canzona {
namespace {

void plan(benchmark::State& state, const std::string& strategy) {
  const WorkloadRequest request =
      testing_support::request_of("qwen3-32b", make_mesh(state.range(0), state.range(1)), strategy);
  for (auto _ : state) benchmark::DoNotOptimize(make_workload(request));
}

void register_all() {
  for (const Strategy& strategy : Strategies::instance().all()) {
    benchmark::RegisterBenchmark(("plan/qwen3-32b/" + strategy.name).c_str(), plan, strategy.name)
        ->ArgNames({"dp", "tp"})
        ->Args({32, 8})
        ->Args({256, 1})
        ->Args({2048, 8})
        ->Unit(benchmark::kMillisecond)
        ->Repetitions(5)
        ->ReportAggregatesOnly();
  }
}

}  // namespace
}  // namespace canzona

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  canzona::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
