// Elementwise passes and sums: bytes per second, beside a copy of buffers of the same size.
#include "optimized/optimizers/elementwise.hpp"

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
  explicit Buffers(int threads) : device(make_host_device(threads)) {
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
    copies.push_back(measured::seconds(*own.stream, [&] {
      launch(*own.stream, kElements, Copy{own.c.as<float>().raw(), own.d.as<float>().raw()});
    }));
    passes.push_back(measured::seconds(*own.stream, pass));
    state.SetIterationTime(passes.back());
  }
  const auto rate = [](std::int64_t moved, const std::vector<double>& samples) {
    return static_cast<double>(moved * kElements) / measured::median(samples);
  };
  state.counters["bytes/s"] = rate(bytes, passes);
  state.counters["copy_bytes/s"] = rate(2 * kFloat, copies);
  state.counters["of_copy"] = rate(bytes, passes) / rate(2 * kFloat, copies);
}

Options options_of(const std::string& optimizer) {
  return Options(reference::Optimizers::instance().find(optimizer).options, {}, optimizer);
}

void memory_copy(benchmark::State& state, int threads) {
  Buffers own(threads);
  measure(state, own, 2 * kFloat, [&] {
    own.device->copy(*own.stream, own.a.as<float>().raw(), own.b.as<float>().raw(),
                     static_cast<std::size_t>(kElements * kFloat));
  });
}

void momentum(benchmark::State& state, int threads) {
  Buffers own(threads);
  measure(state, own, 4 * kFloat, [&] {
    launch(*own.stream, kElements,
           Momentum<float>{0.95f, 0.05f, 1, true, own.a.as<float>().raw(), own.b.as<float>().raw(),
                           own.c.as<float>().raw()});
  });
}

void normalize(benchmark::State& state, int threads) {
  Buffers own(threads);
  const Buffer norms = own.device->allocate_elements<double>(128);
  std::fill_n(norms.as<double>().raw(), 128, 1.0);
  measure(state, own, 2 * kFloat, [&] {
    launch(*own.stream, 128, InverseNorm{1e-30, false, norms.as<double>().raw()});
    launch_rows(*own.stream, 128, kElements / 128, MultiplyRows{norms.as<double>().raw(), own.a.as<float>().raw()});
  });
}

void sums(benchmark::State& state, int threads) {
  Buffers own(threads);
  const Buffer squares = own.device->allocate_elements<double>(128);
  measure(state, own, kFloat, [&] {
    launch_sums(*own.stream, 128, kElements / 128, squares.as<double>(), Square{own.a.as<float>().raw()});
  });
}

void adamw_step(benchmark::State& state, int threads) {
  Buffers own(threads);
  Workspace workspace(*own.device);
  const Options options = options_of("adamw");
  const auto adamw =
      EngineOptimizers::instance().find("adamw").prepare({options, *own.device, workspace, {1, kElements}, {0}});
  measure(state, own, 6 * kFloat, [&] { adamw->step(*own.stream, 1, own.a.as<float>(), own.b.as<float>()); });
}

void update_weights(benchmark::State& state, int threads) {
  Buffers own(threads);
  const Options options = options_of("muon");
  measure(state, own, 4 * kFloat, [&] {
    apply_update(*own.stream, options, own.a.as<const float>(), own.b.as<float>(), own.c.as<float>(), kElements);
  });
}

void register_all() {
  const std::vector<std::pair<std::string, void (*)(benchmark::State&, int)>> passes{
      {"memory_copy", memory_copy}, {"momentum", momentum},          {"normalize", normalize}, {"sums", sums},
      {"adamw_step", adamw_step},   {"apply_update", update_weights}};
  for (const int threads : {1, 2}) {
    for (const auto& [name, body] : passes) {
      benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(),
                                   [body = body, threads](benchmark::State& state) { body(state, threads); })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(5)
          ->Repetitions(1);
    }
  }
}

}  // namespace
}  // namespace canzona::optimized

int main(int argc, char** argv) {
  canzona::optimized::register_all();
  return canzona::optimized::measured::run(argc, argv);
}
