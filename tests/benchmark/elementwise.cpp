// Elementwise passes and sums: bytes per second, beside a copy of buffers of the same size.
#include "optimized/optimizers/elementwise.hpp"

#include "optimized/device/launch.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/optimizer.hpp"
#include "tests/benchmark/measured.hpp"

namespace canzona::optimized {
namespace {

/// Of each buffer: 512 MiB, more than a cache holds.
constexpr std::int64_t kElements = std::int64_t{1} << 27;
constexpr std::int64_t kFloat = sizeof(float);

/// Four buffers of one size, on a device.
struct Buffers {
  Buffers(const ChosenBackend& backend, int threads) : device(measured::make_device(backend, threads)) {
    for (Buffer* buffer : {&a, &b, &c, &d}) *buffer = measured::random_buffer(*device, kElements);
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream = device->make_stream();
  Buffer a, b, c, d;
};

/// pass(buffers) moves so many bytes an element. Copies stand between, so that both meet the machine in the same state.
template <class Pass>
void measure(benchmark::State& state, Buffers& own, std::int64_t bytes, const Pass& pass) {
  std::vector<double> passes, copies;
  for (auto _ : state) {
    copies.push_back(measured::seconds(*own.device, *own.stream, [&] {
      launch(*own.stream, kElements, Copy<float>{own.c.as<float>().raw(), own.d.as<float>().raw()});
    }));
    passes.push_back(measured::seconds(*own.device, *own.stream, pass));
    state.SetIterationTime(passes.back());
  }
  const auto rate = [](std::int64_t moved, const std::vector<double>& samples) {
    return static_cast<double>(moved * kElements) / measured::median(samples);
  };
  state.counters["median_s"] = measured::median(passes);
  state.counters["bytes/s"] = rate(bytes, passes);
  state.counters["copy_bytes/s"] = rate(2 * kFloat, copies);
  state.counters["of_copy"] = rate(bytes, passes) / rate(2 * kFloat, copies);
}

Options options_of(const std::string& optimizer) {
  return Options(reference::Optimizers::instance().find(optimizer).options, {}, optimizer);
}

void memory_copy(benchmark::State& state, Buffers& own) {
  measure(state, own, 2 * kFloat, [&] {
    own.device->copy(*own.stream, own.a.as<float>().raw(), own.b.as<float>().raw(),
                     static_cast<std::size_t>(kElements * kFloat));
  });
}

/// Of a first step, on the device.
Buffer values_of(Buffers& own, const std::string& optimizer) {
  Buffer values = own.device->allocate(sizeof(StepValues));
  put(*own.stream, EngineOptimizers::instance().find(optimizer).values(options_of(optimizer), 1, 1),
      values.as<StepValues>());
  return values;
}

void momentum(benchmark::State& state, Buffers& own) {
  const Buffer values = values_of(own, "muon");
  measure(state, own, 4 * kFloat, [&] {
    launch(*own.stream, kElements,
           Momentum<float>{0.95f, 0.05f, values.as<StepValues>().raw(), true, own.a.as<float>().raw(),
                           own.b.as<float>().raw(), own.c.as<float>().raw()});
  });
}

void normalize(benchmark::State& state, Buffers& own) {
  const Buffer norms = own.device->allocate_elements<double>(128);
  const std::vector<double> ones(128, 1.0);
  own.device->copy(*own.stream, ones.data(), norms.as<double>().raw(), ones.size() * sizeof(double));
  own.stream->synchronize();
  measure(state, own, 2 * kFloat, [&] {
    launch(*own.stream, 128, InverseNorm{1e-30, false, norms.as<double>().raw()});
    launch_rows(*own.stream, 128, kElements / 128, MultiplyRows{norms.as<double>().raw(), own.a.as<float>().raw()});
  });
}

void sums(benchmark::State& state, Buffers& own) {
  const Buffer squares = own.device->allocate_elements<double>(128);
  measure(state, own, kFloat, [&] {
    launch_sums(*own.stream, 128, kElements / 128, squares.as<double>(), Square<float>{own.a.as<float>().raw()});
  });
}

void adamw_step(benchmark::State& state, Buffers& own) {
  Workspace workspace(*own.device);
  const Options options = options_of("adamw");
  const auto adamw =
      EngineOptimizers::instance().find("adamw").prepare({options, *own.device, workspace, {1, kElements}, {0}});
  const Buffer values = values_of(own, "adamw");
  measure(state, own, 6 * kFloat,
          [&] { adamw->step(*own.stream, 1, values.as<const StepValues>(), own.a.as<float>(), own.b.as<float>()); });
}

void update_weights(benchmark::State& state, Buffers& own) {
  const Options options = options_of("muon");
  const Buffer values = values_of(own, "muon");
  measure(state, own, 4 * kFloat, [&] {
    apply_update(*own.stream, options, values.as<const StepValues>(), own.a.as<const float>(), own.b.as<float>(),
                 own.c.as<float>(), kElements);
  });
}

bool register_all(const ChosenBackend& backend) {
  const std::vector<std::pair<std::string, void (*)(benchmark::State&, Buffers&)>> passes{
      {"memory_copy", memory_copy}, {"momentum", momentum},          {"normalize", normalize}, {"sums", sums},
      {"adamw_step", adamw_step},   {"apply_update", update_weights}};
  const bool is_host = measured::is_host(backend);
  for (const int threads : is_host ? std::vector<int>{1, 2} : std::vector<int>{1}) {
    for (const auto& [name, body] : passes) {
      benchmark::RegisterBenchmark((is_host ? fmt::format("{}/threads:{}", name, threads) : name).c_str(),
                                   [backend, threads, body = body](benchmark::State& state) {
                                     Buffers own(backend, threads);
                                     body(state, own);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(is_host ? 5 : 30);
    }
  }
  return true;
}

}  // namespace
}  // namespace canzona::optimized

int main(int argc, char** argv) {
  return canzona::optimized::measured::run(argc, argv, canzona::optimized::register_all);
}
