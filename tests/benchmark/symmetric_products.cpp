// What a symmetric product gains over a plain one of the same operands, by shape and stack, in bf16. On a GPU with
// --backend-option symmetric=tiles this is what optimized/cuda/symmetric_way.hpp has to know: own tiles against cuBLAS.
#include <fmt/format.h>

#include "reference/core/shape.hpp"
#include "tests/benchmark/measured.hpp"

namespace canzona::optimized {
namespace {

/// A stack of matrices in bf16 and their products with themselves transposed.
class Subject {
 public:
  Subject(const ChosenBackend& backend, Shape shape, std::int64_t count)
      : device_(measured::make_device(backend)),
        operand_(bf16_buffer(count * shape.numel())),
        result_(device_->allocate_elements<Bf16>(count * shape.rows * shape.rows)),
        shape_(shape),
        count_(count) {}

  double symmetric() {
    return measured::seconds(*device_, *stream_, [&] {
      device_->linear_algebra().in<Bf16>().symmetric_products(*stream_, 1, operand(), Transpose::no, 0, result(),
                                                              count_);
    });
  }
  double plain() {
    return measured::seconds(*device_, *stream_, [&] {
      device_->linear_algebra().in<Bf16>().products(*stream_, 1, operand(), Transpose::no, operand(), Transpose::yes, 0,
                                                    result(), count_);
    });
  }

 private:
  Buffer bf16_buffer(std::int64_t count) {
    const Buffer values = measured::random_buffer(*device_, count);
    std::vector<float> wide(static_cast<std::size_t>(count));
    std::vector<Bf16> narrow;
    device_->copy(*stream_, values.as<float>().raw(), wide.data(), wide.size() * sizeof(float));
    stream_->synchronize();
    for (const float value : wide) narrow.emplace_back(value);
    Buffer buffer = device_->allocate_elements<Bf16>(count);
    device_->copy(*stream_, narrow.data(), buffer.as<Bf16>().raw(), narrow.size() * sizeof(Bf16));
    stream_->synchronize();
    return buffer;
  }
  MatrixView<const Bf16> operand() const { return {operand_.as<const Bf16>(), shape_.rows, shape_.cols}; }
  MatrixView<Bf16> result() const { return {result_.as<Bf16>(), shape_.rows, shape_.rows}; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  Buffer operand_;
  Buffer result_;
  Shape shape_;
  std::int64_t count_;
};

void against_plain(benchmark::State& state, const ChosenBackend& backend, Shape shape, std::int64_t count) {
  Subject subject(backend, shape, count);
  subject.plain();
  subject.symmetric();
  std::vector<double> symmetric, plain;
  for (auto _ : state) {
    plain.push_back(subject.plain());
    symmetric.push_back(subject.symmetric());
    state.SetIterationTime(symmetric.back());
  }
  const auto n = static_cast<double>(shape.rows);
  const double nominal = 2 * n * n * static_cast<double>(shape.cols * count);
  state.counters["median_s"] = measured::median(symmetric);
  state.counters["nominal_FLOP/s"] = nominal / measured::median(symmetric);
  state.counters["plain_FLOP/s"] = nominal / measured::median(plain);
  state.counters["speedup_over_plain"] = measured::median(plain) / measured::median(symmetric);
}

bool register_all(const ChosenBackend& backend) {
  const bool is_host = measured::is_host(backend);
  std::vector<std::pair<Shape, std::int64_t>> subjects{{{256, 256}, 1}, {{256, 256}, 16}, {{512, 1024}, 1}};
  if (!is_host) {
    for (const std::int64_t n : {1024, 2048, 4096, 5120, 8192}) {
      for (const std::int64_t k : {n, 3 * n}) {
        for (const std::int64_t count : {1, 4}) subjects.push_back({{n, k}, count});
      }
    }
  }
  for (const auto& [shape, count] : subjects) {
    benchmark::RegisterBenchmark(fmt::format("symmetric_products/{}x{}x{}", count, shape.rows, shape.cols).c_str(),
                                 [=](benchmark::State& state) { against_plain(state, backend, shape, count); })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(is_host ? 1 : 10)
        ->Repetitions(3)
        ->ReportAggregatesOnly();
  }
  return true;
}

}  // namespace
}  // namespace canzona::optimized

int main(int argc, char** argv) {
  return canzona::optimized::measured::run(argc, argv, canzona::optimized::register_all);
}
