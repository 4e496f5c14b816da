// What benchmarks of the host's device share: times of work on a stream, medians, and the context of the report.
#pragma once

#include <benchmark/benchmark.h>
#include <cblas.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "optimized/host/host_device.hpp"
#include "optimized/host/host_stream.hpp"
#include "reference/core/random.hpp"

namespace canzona::optimized::measured {

/// Seconds from the start of `work`, which fills the stream, to the end of what it put there.
template <class Work>
double seconds(Stream& stream, const Work& work) {
  const double begin = host_seconds();
  work();
  stream.synchronize();
  return host_seconds() - begin;
}

/// Seconds until both are done, side by side on two threads.
template <class Left, class Right>
double seconds_of_both(const Left& left, const Right& right) {
  const double begin = host_seconds();
  std::thread other(left);
  right();
  other.join();
  return host_seconds() - begin;
}

inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Bell-shaped elements times `scale`.
inline Buffer random_buffer(Device& device, std::int64_t count, float scale = 1) {
  Buffer buffer = device.allocate_elements<float>(count);
  float* values = buffer.as<float>().raw();
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = scale * static_cast<float>(random_normal(random_key({1}), i % 4096));
  return buffer;
}

/// Registered benchmarks, of which the aggregates of repetitions are shown. OpenBLAS takes its kernels by the
/// processor's model: an old OpenBLAS on a new processor takes its slowest (OPENBLAS_CORETYPE names others).
inline int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("openblas", openblas_get_config());
  benchmark::AddCustomContext("openblas kernels", openblas_get_corename());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace canzona::optimized::measured
