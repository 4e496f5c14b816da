// A benchmark program that runs something once for every strategy.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>

#include "reference/strategies/strategy.hpp"

namespace canzona {

/// Registers what `add` makes of each strategy, in milliseconds, five repetitions of which the aggregates are shown,
/// and runs them.
inline int run_for_each_strategy(int argc, char** argv,
                                 const std::function<benchmark::internal::Benchmark*(const std::string&)>& add) {
  benchmark::Initialize(&argc, argv);
  for (const Strategy& strategy : Strategies::instance().all())
    add(strategy.name)->Unit(benchmark::kMillisecond)->Repetitions(5)->ReportAggregatesOnly();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace canzona
