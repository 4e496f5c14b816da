// What benchmarks of devices share: the backend that they measure, times of work on a stream, medians, and the context
// of the report.
#pragma once

#include <benchmark/benchmark.h>
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "optimized/engine/backend.hpp"
#include "optimized/host/host_device.hpp"
#include "reference/core/error.hpp"
#include "reference/core/random.hpp"
#if defined(CANZONA_HAS_CUDA)
#include "optimized/cuda/cuda_device.hpp"
#endif

namespace canzona::optimized::measured {

/// One device of the backend; only the host's has a number of threads.
inline std::unique_ptr<Device> make_device(const ChosenBackend& backend, int threads = 1) {
#if defined(CANZONA_HAS_CUDA)
  if (backend.backend->name == "cuda") return std::make_unique<CudaDevice>(0, Watch{}, cuda_settings(backend.options));
#endif
  static_cast<void>(backend);
  return make_host_device(threads);
}

inline bool is_host(const ChosenBackend& backend) { return backend.backend->name == "host"; }

/// Seconds on the device from the start of `work`, which fills the stream, to the end of what it put there.
template <class Work>
double seconds(Device& device, Stream& stream, const Work& work) {
  const auto begun = device.make_event(), ended = device.make_event();
  stream.record(*begun);
  work();
  stream.record(*ended);
  stream.synchronize();
  ended->synchronize();
  return ended->seconds() - begun->seconds();
}

inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Bell-shaped elements times `scale`.
inline Buffer random_buffer(Device& device, std::int64_t count, float scale = 1) {
  constexpr std::int64_t kPeriod = 4096;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = i < kPeriod ? scale * static_cast<float>(random_normal(random_key({1}), i))
                                                      : values[static_cast<std::size_t>(i - kPeriod)];
  }
  Buffer buffer = device.allocate_elements<float>(count);
  const auto stream = device.make_stream();
  device.copy(*stream, values.data(), buffer.as<float>().raw(), values.size() * sizeof(float));
  stream->synchronize();
  return buffer;
}

/// Takes --backend NAME and --backend-option NAME=VALUE out of the arguments; without them it is the host.
inline ChosenBackend take_backend(int& argc, char** argv) {
  std::string name = "host";
  std::map<std::string, std::string> options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (i + 1 < argc && argument == "--backend") {
      name = argv[++i];
    } else if (i + 1 < argc && argument == "--backend-option") {
      const std::string option = argv[++i];
      const std::size_t equals = std::min(option.find('='), option.size());
      options[option.substr(0, equals)] = option.substr(std::min(equals + 1, option.size()));
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  const Backend& found = Backends::instance().find(name);
  found.require();
  return {&found, Options(found.options, options, "backend " + name)};
}

/// Runs what add(backend) registers, if it says that this process shall tell; of repetitions the aggregates are shown.
/// OpenBLAS takes its kernels by the processor's model: an old OpenBLAS on a new processor takes its slowest
/// (OPENBLAS_CORETYPE names others).
template <class Add>
int run(int argc, char** argv, const Add& add) {
  try {
    const ChosenBackend backend = take_backend(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::AddCustomContext("backend", backend.backend->name);
    if (is_host(backend)) {
      benchmark::AddCustomContext("openblas", openblas_get_config());
      benchmark::AddCustomContext("openblas kernels", openblas_get_corename());
    }
    if (add(backend)) benchmark::RunSpecifiedBenchmarks();
    return 0;
  } catch (const InputError& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
}

}  // namespace canzona::optimized::measured
