// NorMuon on a device. Must equal reference/optimizers/normuon.cpp.
#include <cmath>

#include "optimized/optimizers/elementwise.hpp"
#include "optimized/optimizers/muon.hpp"

namespace canzona::optimized {
namespace {

/// s ← β₂s + (1 − β₂)·mean O²; divisor = √s + eps, or 1 where that is zero. i counts the rows of the stack.
struct RowDivisor {
  float b2;
  float one_minus_b2;
  float eps;
  double cols;
  const double* squares;
  float* s;
  float* divisors;

  CANZONA_KERNEL void operator()(std::int64_t i) {
    const auto mean = static_cast<float>(squares[i] / cols);
    s[i] = b2 * s[i] + one_minus_b2 * mean;
    const float divisor = std::sqrt(s[i]) + eps;
    divisors[i] = divisor > 0 ? divisor : 1.0f;
  }
};

/// N = O/divisor of its row.
struct DivideRows {
  const float* divisors;
  float* values;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) { values[i] /= divisors[row]; }
};

/// ‖O‖/(‖N‖ + eps), or 1 where that is a division by zero. i counts matrices, whose ‖O‖² are the sums of their rows'.
struct NormRatio {
  const double* row_squares;
  std::int64_t rows;
  const double* squares;
  double eps;
  float* ratios;

  CANZONA_KERNEL void operator()(std::int64_t i) {
    double before = 0;
    for (std::int64_t row = i * rows; row < (i + 1) * rows; ++row) before += row_squares[row];
    const double after = std::sqrt(squares[i]) + eps;
    ratios[i] = after > 0 ? static_cast<float>(std::sqrt(before) / after) : 1.0f;
  }
};

/// values ← values times the ratio of their matrix.
struct Restore {
  const float* ratios;
  float* values;
  CANZONA_KERNEL void operator()(std::int64_t matrix, std::int64_t i) { values[i] *= ratios[matrix]; }
};

class NorMuon final : public Muon {
 public:
  explicit NorMuon(const Preparation& own)
      : Muon(own),
        workspace_(own.workspace),
        shape_(own.shape),
        count_(own.count()),
        beta2_(own.options.number("beta2")),
        second_moment_eps_(own.options.number("second_moment_eps")),
        norm_eps_(own.options.number("norm_eps")),
        second_moment_(own.device.allocate_elements<float>(count_ * shape_.rows)) {
    constexpr auto kDouble = static_cast<std::int64_t>(sizeof(double));
    constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
    workspace_.reserve(kRowSquares, count_ * shape_.rows * kDouble);
    workspace_.reserve(kDivisors, count_ * shape_.rows * kFloat);
    workspace_.reserve(kNormalizedSquares, count_ * kDouble);
    workspace_.reserve(kRatios, count_ * kFloat);
  }

  void step(Stream& stream, std::int64_t /*number*/, DevicePointer<const StepValues> values,
            DevicePointer<const float> gradient, DevicePointer<float> update) override {
    const DevicePointer<float> O = orthogonalized(stream, values, gradient);
    normalize(stream, O);
    scale(stream, O, update);
  }

 private:
  enum Slot : std::size_t { kRowSquares = kFreeSlot, kDivisors, kNormalizedSquares, kRatios };

  /// s_i ← β₂·s_i + (1 − β₂)·mean_j O_ij²;  N_ij = O_ij/(√s_i + eps);  O ← N·‖O‖/(‖N‖ + norm_eps)
  void normalize(Stream& stream, DevicePointer<float> O) {
    const auto row_squares = workspace_.slot<double>(kRowSquares);
    const auto divisors = workspace_.slot<float>(kDivisors);
    const auto squares = workspace_.slot<double>(kNormalizedSquares);
    const auto ratios = workspace_.slot<float>(kRatios);
    const std::int64_t rows = count_ * shape_.rows;
    const std::int64_t numel = shape_.numel();
    launch_sums(stream, rows, shape_.cols, row_squares, Square<float>{O.raw()});
    launch(stream, rows,
           RowDivisor{static_cast<float>(beta2_), static_cast<float>(1 - beta2_),
                      static_cast<float>(second_moment_eps_), static_cast<double>(shape_.cols), row_squares.raw(),
                      second_moment_.as<float>().raw(), divisors.raw()});
    launch_rows(stream, rows, shape_.cols, DivideRows{divisors.raw(), O.raw()});
    launch_sums(stream, count_, numel, squares, Square<float>{O.raw()});
    launch(stream, count_, NormRatio{row_squares.raw(), shape_.rows, squares.raw(), norm_eps_, ratios.raw()});
    launch_rows(stream, count_, numel, Restore{ratios.raw(), O.raw()});
  }

  Workspace& workspace_;
  Shape shape_;
  std::int64_t count_;
  double beta2_;
  double second_moment_eps_;
  double norm_eps_;
  Buffer second_moment_;  // of each row
};

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "normuon",
    .order = 0,
    .variants = newton_schulz_variants(),
    .make = [](const Preparation& own) { return std::make_unique<NorMuon>(own); },
    .roundings = newton_schulz_roundings,
    .has_fp64 = true,
}};

}  // namespace
}  // namespace canzona::optimized
