// How long one simulated point takes: from a model's dimensions to its step latency.
#include <benchmark/benchmark.h>

#include "harness/record/step_record.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

void simulate(benchmark::State& state, const std::string& model, const std::string& strategy) {
  const harness::Point point{testing_support::request_of(model, make_mesh(32, 8), strategy)};
  harness::SimulationSettings settings;
  settings.cluster = harness::find_cluster("h100-256");
  for (auto _ : state) benchmark::DoNotOptimize(harness::simulate_point(point, settings));
}

void register_all() {
  for (const char* model : {"qwen3-1.7b", "qwen3-32b"}) {
    for (const Strategy& strategy : Strategies::instance().all()) {
      const std::string name = std::string("simulate/") + model + "/dp:32/tp:8/" + strategy.name;
      benchmark::RegisterBenchmark(name.c_str(), simulate, std::string(model), strategy.name)
          ->Unit(benchmark::kMillisecond)
          ->Repetitions(5)
          ->ReportAggregatesOnly();
    }
  }
}

}  // namespace
}  // namespace canzona

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  canzona::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
