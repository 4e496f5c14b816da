#include "optimized/optimizers/newton_schulz.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optimized/optimizers/elementwise.hpp"

namespace canzona::optimized {
namespace {

using reference::Coefficients;

/// Steps of one segment of the Gram form.
constexpr std::size_t kSegment = 3;

/// A[i][i] ← A[i][i] + value for each matrix of a stack; i counts the rows of all.
template <class T>
struct AddToDiagonals {
  Wide<T> value;
  std::int64_t side;
  T* matrices;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    T& own = matrices[i * side + i % side];
    own = static_cast<T>(static_cast<Wide<T>>(own) + value);
  }
};

}  // namespace

std::vector<std::string> newton_schulz_variants() { return {"symmetric", "dense", "gram"}; }

double newton_schulz_flops(const std::string& variant, Shape shape, std::int64_t steps) {
  const auto m = static_cast<double>(shape.shorter());
  const auto n = static_cast<double>(shape.longer());
  const auto k = static_cast<double>(steps);
  const double triangle = m * (m + 1);  // FLOPs per unit of inner length
  if (variant == "dense") return k * (2 * m * m * n + 2 * m * m * m + 2 * m * m * n);
  if (variant == "symmetric") return k * (triangle * n + triangle * m + 2 * m * m * n);
  const double segments = std::ceil(k / static_cast<double>(kSegment));
  // G and QX of each segment; G² of each step; PQ and the two products of PGP of all steps but one of a segment.
  return segments * (triangle * n + 2 * m * m * n) + k * triangle * m + 3 * (k - segments) * triangle * m;
}

NewtonSchulz::NewtonSchulz(Device& device, Workspace& workspace, std::size_t first_slot, Shape shape,
                           std::int64_t count, std::vector<Coefficients> coefficients, const std::string& variant,
                           DType arithmetic)
    : algebra_(device.linear_algebra()),
      workspace_(workspace),
      first_slot_(first_slot),
      shape_(shape),
      count_(count),
      coefficients_(std::move(coefficients)),
      variant_(variant == "gram"    ? Variant::gram
               : variant == "dense" ? Variant::dense
                                    : Variant::symmetric),
      arithmetic_(arithmetic) {
  const std::int64_t bytes = bytes_of(arithmetic);
  workspace_.reserve(first_slot_ + kNext, count_ * shape_.numel() * bytes);
  const std::size_t squares = variant_ == Variant::gram ? kSpare : kPolynomial;
  for (std::size_t slot = kGram; slot <= squares; ++slot)
    workspace_.reserve(first_slot_ + slot, count_ * shape_.shorter() * shape_.shorter() * bytes);
  if (arithmetic != DType::fp32) workspace_.reserve(first_slot_ + kConverted, count_ * shape_.numel() * bytes);
}

void NewtonSchulz::run(Stream& stream, DevicePointer<float> home) {
  if (arithmetic_ == DType::fp32) return orthogonalize(stream, home);
  with_type(arithmetic_, [&]<class T>(T) {
    const std::int64_t count = count_ * shape_.numel();
    const auto converted = workspace_.slot<T>(first_slot_ + kConverted);
    launch(stream, count, Convert<float, T>{home.raw(), converted.raw()});
    orthogonalize(stream, converted);
    launch(stream, count, Convert<T, float>{converted.raw(), home.raw()});
  });
}

template <class T>
void NewtonSchulz::orthogonalize(Stream& stream, DevicePointer<T> home) {
  MatrixView<T> X{home, shape_.rows, shape_.cols};
  MatrixView<T> next = matrix<T>(kNext, shape_.rows, shape_.cols);
  if (variant_ == Variant::gram) {
    run_segments(stream, X, next);
  } else {
    run_steps(stream, X, next);
  }
  if (X.data.raw() != home.raw()) launch(stream, count_ * X.size(), Copy<T>{X.data.raw(), home.raw()});
}

template <class T>
void NewtonSchulz::run_steps(Stream& stream, MatrixView<T>& X, MatrixView<T>& next) {
  const MatrixView<T> A = square<T>(kGram);
  const MatrixView<T> Z = square<T>(kPolynomial);
  for (const Coefficients& step : coefficients_) {
    gram(stream, in(X), A);
    quadratic(stream, step, A, Z);
    apply(stream, step[0], in(Z), X, next);
  }
}

template <class T>
void NewtonSchulz::run_segments(Stream& stream, MatrixView<T>& X, MatrixView<T>& next) {
  for (std::size_t begin = 0; begin < coefficients_.size(); begin += kSegment) {
    gram(stream, in(X), square<T>(kGram));
    const MatrixView<T> Q = accumulate<T>(stream, begin, std::min(begin + kSegment, coefficients_.size()));
    apply(stream, 0, in(Q), X, next);
  }
}

template <class T>
MatrixView<T> NewtonSchulz::accumulate(Stream& stream, std::size_t begin, std::size_t end) {
  const MatrixView<T> G = square<T>(kGram);
  MatrixView<T> Z = square<T>(kPolynomial), Q = square<T>(kFactor), R = square<T>(kSpare);
  // to ← a·from + left·right, all of which commute
  const auto add_product = [&](double a, MatrixView<T> from, MatrixView<T> left, MatrixView<T> right,
                               MatrixView<T> to) {
    launch(stream, count_ * G.size(), Copy<T>{from.data.raw(), to.data.raw()});
    products<T>().commuting_products(stream, in(left), in(right), static_cast<Wide<T>>(a), to, count_);
  };
  for (std::size_t step = begin; step < end; ++step) {
    const double a = coefficients_[step][0];
    quadratic(stream, coefficients_[step], G, Z);
    if (step > begin) {
      add_product(a, Q, Z, Q, R);
      std::swap(Q, R);
    }
    if (step + 1 < end) {
      // R = GP, G ← RP
      add_product(a, G, G, Z, R);
      add_product(a, R, R, Z, G);
    }
    if (step == begin) {
      launch(stream, count_ * Z.rows, AddToDiagonals<T>{static_cast<Wide<T>>(a), Z.rows, Z.data.raw()});
      std::swap(Z, Q);
    }
  }
  return Q;
}

template <class T>
void NewtonSchulz::gram(Stream& stream, MatrixView<const T> X, MatrixView<T> G) {
  const Transpose first = is_tall() ? Transpose::yes : Transpose::no;
  if (variant_ != Variant::dense) return products<T>().symmetric_products(stream, 1, X, first, 0, G, count_);
  products<T>().products(stream, 1, X, first, X, is_tall() ? Transpose::no : Transpose::yes, 0, G, count_);
}

template <class T>
void NewtonSchulz::quadratic(Stream& stream, const Coefficients& step, MatrixView<T> A, MatrixView<T> Z) {
  const auto b = static_cast<Wide<T>>(step[1]), c = static_cast<Wide<T>>(step[2]);
  if (variant_ != Variant::dense) return products<T>().quadratics(stream, b, c, in(A), Z, count_);
  launch(stream, count_ * A.size(), Copy<T>{A.data.raw(), Z.data.raw()});
  products<T>().products(stream, c, in(A), Transpose::no, in(A), Transpose::no, b, Z, count_);
}

template <class T>
void NewtonSchulz::apply(Stream& stream, double a, MatrixView<const T> Z, MatrixView<T>& X, MatrixView<T>& next) {
  const MatrixView<const T> left = is_tall() ? in(X) : Z;
  const MatrixView<const T> right = is_tall() ? Z : in(X);
  if (a != 0) launch(stream, count_ * X.size(), Copy<T>{X.data.raw(), next.data.raw()});
  products<T>().products(stream, 1, left, Transpose::no, right, Transpose::no, static_cast<Wide<T>>(a), next, count_);
  std::swap(X.data, next.data);
}

std::int64_t newton_schulz_roundings(const Options& options) { return 11 * options.integer("ns_steps") + 4; }

std::optional<double> newton_schulz_amplification(const Options& options, const std::string& variant) {
  if (!options.is("momentum_dtype", "fp32")) return std::nullopt;
  const std::vector<Coefficients> steps =
      reference::newton_schulz_coefficients(options.text("coefficients"), options.integer("ns_steps"));
  double all = 1, before = 1, largest = 0;  // of all steps; of those before in the segment; |bⱼ|∏ aᵢ/aⱼ
  for (std::size_t j = 0; j < steps.size(); ++j) {
    const auto& [a, b, c] = steps[j];
    if (j % kSegment == 0) before = 1;
    if (j % kSegment > 0) largest = std::max(largest, std::abs(b) * before / std::abs(a));
    before *= std::abs(a);
    all *= std::abs(a);
  }
  return variant == "gram" ? all * (1 + largest) : all;
}

}  // namespace canzona::optimized
