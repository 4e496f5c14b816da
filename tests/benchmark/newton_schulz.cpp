// How near Newton–Schulz comes to the rate of plain products, by variant and shape, and what stacks gain.
#include "optimized/optimizers/newton_schulz.hpp"

#include <fmt/format.h>

#include <cmath>
#include <thread>

#include "optimized/device/host_clock.hpp"
#include "tests/benchmark/measured.hpp"

namespace canzona::optimized {
namespace {

constexpr std::int64_t kSteps = 5;

/// A stack on a device, and a plain product of the size of PX.
class Subject {
 public:
  Subject(const ChosenBackend& backend, Shape shape, std::int64_t count, const std::string& variant, int threads)
      : device_(measured::make_device(backend, threads)),
        stack_(
            measured::random_buffer(*device_, count * shape.numel(), 1 / std::sqrt(static_cast<float>(shape.numel())))),
        square_(measured::random_buffer(*device_, shape.rows * shape.rows)),
        result_(device_->allocate_elements<float>(shape.numel())),
        shape_(shape),
        newton_schulz_(*device_, workspace_, 0, shape, count, reference::newton_schulz_coefficients("simple", kSteps),
                       variant),
        alone_(*device_, workspace_, 0, shape, 1, reference::newton_schulz_coefficients("simple", kSteps), variant),
        count_(count) {}

  double stacked() {
    return measured::seconds(*device_, *stream_, [&] { newton_schulz_.run(*stream_, stack_.as<float>()); });
  }
  double one_by_one() {
    return measured::seconds(*device_, *stream_, [&] {
      for (std::int64_t index = 0; index < count_; ++index)
        alone_.run(*stream_, stack_.as<float>() + index * shape_.numel());
    });
  }
  double product() {
    return measured::seconds(*device_, *stream_, [&] {
      device_->linear_algebra().product(*stream_, 1, {square_.as<float>(), shape_.rows, shape_.rows}, Transpose::no,
                                        {stack_.as<float>(), shape_.rows, shape_.cols}, Transpose::no, 0,
                                        {result_.as<float>(), shape_.rows, shape_.cols});
    });
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  Workspace workspace_{*device_};
  Buffer stack_;
  Buffer square_;
  Buffer result_;
  Shape shape_;
  NewtonSchulz newton_schulz_;
  NewtonSchulz alone_;
  std::int64_t count_;
};

/// Products stand between the runs, so that both meet the machine in the same state.
void by_variant(benchmark::State& state, const ChosenBackend& backend, Shape shape, const std::string& variant) {
  Subject subject(backend, shape, 1, variant, 1);
  subject.product();
  subject.stacked();
  std::vector<double> own, products;
  for (auto _ : state) {
    products.push_back(subject.product());
    own.push_back(subject.stacked());
    products.push_back(subject.product());
    state.SetIterationTime(own.back());
  }
  const double executed = newton_schulz_flops(variant, shape, kSteps) / measured::median(own);
  const double nominal = newton_schulz_flops("dense", shape, kSteps) / measured::median(own);
  const auto m = static_cast<double>(shape.rows);
  const double rate = 2 * m * m * static_cast<double>(shape.cols) / measured::median(products);
  state.counters["median_s"] = measured::median(own);
  state.counters["executed_FLOP/s"] = executed;
  state.counters["nominal_FLOP/s"] = nominal;
  state.counters["sgemm_FLOP/s"] = rate;
  state.counters["executed/sgemm"] = executed / rate;
  state.counters["nominal/sgemm"] = nominal / rate;
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

/// On the host by two threads. There two devices of one thread, with half of the matrices each and nothing to agree on,
/// say what the cores can do at all.
void stack(benchmark::State& state, const ChosenBackend& backend, Shape shape, std::int64_t count,
           const std::string& variant) {
  Subject subject(backend, shape, count, variant, 2);
  subject.stacked();
  subject.one_by_one();
  std::vector<double> together, apart;
  for (auto _ : state) {
    apart.push_back(subject.one_by_one());
    together.push_back(subject.stacked());
    state.SetIterationTime(together.back());
  }
  state.counters["median_s"] = measured::median(together);
  state.counters["executed_FLOP/s"] =
      static_cast<double>(count) * newton_schulz_flops(variant, shape, kSteps) / measured::median(together);
  state.counters["speedup_over_one_by_one"] = measured::median(apart) / measured::median(together);
  if (!measured::is_host(backend)) return;
  Subject left(backend, shape, count / 2, variant, 1), right(backend, shape, count / 2, variant, 1);
  std::vector<double> independent;
  for (std::size_t sample = 0; sample < apart.size(); ++sample) {
    independent.push_back(seconds_of_both([&] { left.one_by_one(); }, [&] { right.one_by_one(); }));
  }
  state.counters["two_devices_over_one_by_one"] = measured::median(apart) / measured::median(independent);
}

bool register_all(const ChosenBackend& backend) {
  const auto register_one = [](const std::string& name, const auto& body, std::int64_t iterations) {
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(iterations)
        ->Repetitions(3)
        ->ReportAggregatesOnly();
  };
  const bool is_host = measured::is_host(backend);
  std::vector<Shape> shapes{{512, 512}, {1024, 1024}, {2048, 2048}, {1024, 4096}};
  if (!is_host) shapes.insert(shapes.end(), {{4096, 4096}, {5120, 5120}, {4096, 12288}, {5120, 25600}});
  for (const Shape& shape : shapes) {
    for (const std::string& variant : newton_schulz_variants()) {
      register_one(
          fmt::format("newton_schulz/{}x{}/{}", shape.rows, shape.cols, variant),
          [=](benchmark::State& state) { by_variant(state, backend, shape, variant); },
          !is_host                      ? 10
          : shape.numel() > 1024 * 1024 ? 1
                                        : 3);
    }
  }
  for (const std::string& variant : newton_schulz_variants()) {
    register_one(
        fmt::format("newton_schulz/16x128x128{}/{}", is_host ? "/threads:2" : "", variant),
        [=](benchmark::State& state) {
          stack(state, backend, {128, 128}, 16, variant);
        },
        10);
  }
  return true;
}

}  // namespace
}  // namespace canzona::optimized

int main(int argc, char** argv) {
  return canzona::optimized::measured::run(argc, argv, canzona::optimized::register_all);
}
