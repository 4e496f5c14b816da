#include "optimized/optimizers/inverse_root.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "optimized/device/launch.hpp"
#include "optimized/optimizers/refresh.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

using Kind = reference::RootMethod::Kind;

/// Slots from the first: square matrices, then vectors and scalars. Of the eigen method kX is the root, kM holds
/// V·diag(λ^(−1/p)) and kA the eigenvectors.
enum Slot : std::size_t { kA, kX, kM, kN, kSpare, kOther, kRest, kValues, kPowers, kRowSums, kScalars, kFlags, kWork };

/// Doubles on the device.
enum Scalar : std::size_t { kSpoiltInput, kSpoiltRoot, kLargestRow, kSize, kError, kNext, kScalarCount };

/// Flags on the device: iterations go on; a root was found; it may replace the old one.
enum Flag : std::size_t { kGo, kFound, kGood, kFlagCount };

struct Divide {
  float divisor;
  const float* from;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = from[i] / divisor; }
};

struct Magnitude {
  const float* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return std::abs(static_cast<double>(values[i])); }
};

struct Value {
  const double* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return values[i]; }
};

struct Diagonal {
  const float* matrix;
  std::int64_t cols;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return static_cast<double>(matrix[i * cols + i]); }
};

/// |M − I|, element by element.
struct DistanceFromIdentity {
  const float* matrix;
  std::int64_t cols;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    const float one = i % (cols + 1) == 0 ? 1.0f : 0.0f;
    return std::abs(static_cast<double>(matrix[i] - one));
  }
};

/// A ← A + max(ε, ε_rel·largest row sum)·I; i counts rows.
struct Ridge {
  double epsilon;
  double relative;
  const double* largest_row;
  std::int64_t cols;
  float* matrix;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const double scaled = relative * *largest_row;
    matrix[i * cols + i] += static_cast<float>(scaled > epsilon ? scaled : epsilon);
  }
};

/// λ^(−1/p); of eigenvalues below ε, all are shifted so that the smallest, which is the first, equals it.
struct Powers {
  const float* values;
  float least;
  float exponent;
  float* powers;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const float shift = values[0] < least ? least - values[0] : 0.0f;
    powers[i] = std::pow(values[i] + shift, exponent);
  }
};

/// V·diag(powers)
struct ScaleColumns {
  const float* matrix;
  const float* powers;
  std::int64_t cols;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = matrix[i] * powers[i % cols]; }
};

/// X = z^(1/p)·I, M = z·A with z = numerator/size, where size is what a sum holds, or its square root.
struct Begin {
  double numerator;
  const double* sum;
  bool squared;
  double inverse_root;
  std::int64_t cols;
  const float* A;
  float* X;
  float* M;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const double z = numerator / (squared ? std::sqrt(*sum) : *sum);
    X[i] = i % (cols + 1) == 0 ? static_cast<float>(std::pow(z, inverse_root)) : 0.0f;
    M[i] = static_cast<float>(z) * A[i];
  }
};

/// to ← a·M + b·I
struct Affine {
  float a;
  const float* M;
  float b;
  std::int64_t cols;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = a * M[i] + (i % (cols + 1) == 0 ? b : 0.0f); }
};

/// Newton goes on while the error is finite and above the tolerance.
struct NewtonGoesOn {
  double tolerance;
  const double* error;
  std::int32_t* go;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    *go = !(*error <= tolerance) && std::isfinite(*error) ? 1 : 0;
  }
};

/// The series starts where the error is above the tolerance, NaN too.
struct SeriesBegins {
  double tolerance;
  const double* error;
  std::int32_t* go;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) { *go = !(*error <= tolerance) ? 1 : 0; }
};

/// It ends too when the error grows by a fifth or, below 1e-3, stands still.
struct SeriesGoesOn {
  double tolerance;
  double* error;
  const double* next;
  std::int32_t* go;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    const bool ends = !(*next <= 1.2 * *error) || (*next == *error && *error < 1e-3);
    if (!ends) *error = *next;
    *go = !ends && !(*error <= tolerance) ? 1 : 0;
  }
};

/// found ← distance ≤ limit; not where it is NaN.
struct IsNear {
  double limit;
  const double* distance;
  std::int32_t* found;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) { *found = *distance <= limit ? 1 : 0; }
};

struct Judge {
  const double* scalars;
  std::int32_t* flags;
  std::int32_t* failed;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    const bool good = flags[kFound] != 0 && scalars[kSpoiltInput] == 0 && scalars[kSpoiltRoot] == 0;
    flags[kGood] = good ? 1 : 0;
    if (!good) *failed = 1;
  }
};

/// b_i = ∏_{j<i} (1 + j·p)/((j + 1)·p): the binomial series of (1 − x)^(−1/p).
std::vector<double> series(std::int64_t order, int p) {
  std::vector<double> b{1};
  for (std::int64_t i = 1; i < order; ++i)
    b.push_back(b.back() * (1 + static_cast<double>(i - 1) * p) / (static_cast<double>(i) * p));
  return b;
}

}  // namespace

InverseRoot::InverseRoot(Device& device, Workspace& workspace, std::size_t first_slot, std::int64_t longest,
                         double root, double epsilon, const reference::RootMethod& method)
    : device_(device),
      workspace_(workspace),
      first_slot_(first_slot),
      root_(root),
      p_(static_cast<int>(std::lround(root))),
      epsilon_(epsilon),
      method_(method) {
  const bool eigen = method.kind == Kind::eigen;
  if (!eigen && !reference::is_coupled_root(root))
    throw InputError("", "the root of a coupled iteration", fmt::format("{:g}", root), "an integer from 1");
  if (!eigen) series_ = series(method.order, p_);
  const std::int64_t floats = longest * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t doubles = longest * static_cast<std::int64_t>(sizeof(double));
  for (std::size_t index = kA; index <= (eigen ? kM : kRest); ++index)
    workspace.reserve(first_slot + index, longest * floats);
  workspace.reserve(first_slot + kValues, floats);
  workspace.reserve(first_slot + kPowers, floats);
  workspace.reserve(first_slot + kRowSums, doubles);
  workspace.reserve(first_slot + kScalars, kScalarCount * sizeof(double));
  workspace.reserve(first_slot + kFlags, kFlagCount * sizeof(std::int32_t));
  if (eigen) workspace.reserve(first_slot + kWork, device.linear_algebra().factorization_bytes(longest));
}

void InverseRoot::compute(Stream& stream, MatrixIn A, float divisor, MatrixOut X,
                          DevicePointer<std::int32_t> failed) const {
  const std::int64_t n = A.rows;
  const DevicePointer<double> scalars = slot<double>(kScalars);
  const DevicePointer<std::int32_t> flags = slot<std::int32_t>(kFlags);
  launch(stream, A.size(), Divide{divisor, A.data.raw(), square(kA, n).data.raw()});
  launch_sums(stream, 1, A.size(), scalars + kSpoiltInput, NotFinite{square(kA, n).data.raw()});
  add_ridge(stream, n);
  switch (method_.kind) {
    case Kind::eigen: by_eigenvalues(stream, n); break;
    case Kind::coupled_newton: by_newton(stream, n); break;
    case Kind::coupled_higher_order: by_series(stream, n); break;
  }
  const MatrixOut found = square(kX, n);
  launch_sums(stream, 1, found.size(), scalars + kSpoiltRoot, NotFinite{found.data.raw()});
  launch(stream, 1, Judge{scalars.raw(), flags.raw(), failed.raw()});
  launch(stream, X.size(), CopyIf{(flags + kGood).raw(), found.data.raw(), X.data.raw()});
}

void InverseRoot::add_ridge(Stream& stream, std::int64_t n) const {
  const MatrixOut A = square(kA, n);
  const DevicePointer<double> largest_row = slot<double>(kScalars) + kLargestRow;
  const bool relative = method_.kind == Kind::coupled_higher_order;
  if (relative) {
    launch_sums(stream, n, n, slot<double>(kRowSums), Magnitude{A.data.raw()});
    launch_maximum(stream, n, largest_row, Value{slot<double>(kRowSums).raw()});
  }
  launch(stream, n, Ridge{epsilon_, relative ? method_.rel_epsilon : 0, largest_row.raw(), n, A.data.raw()});
}

/// A + εI = V diag(λ) Vᵀ  →  X = V diag(λ^(−1/p)) Vᵀ
void InverseRoot::by_eigenvalues(Stream& stream, std::int64_t n) const {
  LinearAlgebra& algebra = device_.linear_algebra();
  const MatrixOut V = square(kA, n), scaled = square(kM, n);
  const DevicePointer<float> values = slot<float>(kValues), powers = slot<float>(kPowers);
  algebra.eigh(stream, V, values, slot<std::int32_t>(kFlags) + kFound, slot<std::byte>(kWork));
  launch(stream, n, Powers{values.raw(), static_cast<float>(epsilon_), static_cast<float>(-1 / root_), powers.raw()});
  launch(stream, V.size(), ScaleColumns{V.data.raw(), powers.raw(), n, scaled.data.raw()});
  algebra.product(stream, 1, in(scaled), Transpose::no, in(V), Transpose::yes, 0, square(kX, n));
}

/// z = (p + 1)/(2‖A‖_F) puts every eigenvalue of M where Newton's iteration converges.
void InverseRoot::by_newton(Stream& stream, std::int64_t n) const {
  const DevicePointer<double> error = slot<double>(kScalars) + kError;
  const DevicePointer<std::int32_t> flags = slot<std::int32_t>(kFlags);
  const NewtonGoesOn goes_on{method_.tolerance.value_or(1e-6), error.raw(), (flags + kGo).raw()};
  launch_sums(stream, 1, n * n, slot<double>(kScalars) + kSize, Square{square(kA, n).data.raw()});
  begin(stream, n, (p_ + 1) / 2.0);
  measure(stream, in(square(kM, n)), kError);
  launch(stream, 1, goes_on);
  stream.repeat_while(flags + kGo, method_.max_iterations, [this, n, goes_on](Stream& own) {
    newton_factor(own, n);
    advance(own, n);
    measure(own, in(square(kM, n)), kError);
    launch(own, 1, goes_on);
  });
  launch(stream, 1, Fill<std::int32_t>{1, (flags + kFound).raw()});  // Newton's iterate is what it is
}

/// One Newton step, then N = Σ b_i (I − M)^i.
void InverseRoot::by_series(Stream& stream, std::int64_t n) const {
  const DevicePointer<double> scalars = slot<double>(kScalars);
  const DevicePointer<std::int32_t> go = slot<std::int32_t>(kFlags) + kGo;
  const double tolerance = method_.tolerance.value_or(1e-8);
  const SeriesGoesOn goes_on{tolerance, (scalars + kError).raw(), (scalars + kNext).raw(), go.raw()};
  launch_sums(stream, 1, n, scalars + kSize, Diagonal{square(kA, n).data.raw(), n});
  begin(stream, n, 1);
  newton_factor(stream, n);
  advance(stream, n);
  measure(stream, in(square(kM, n)), kError);
  launch(stream, 1, SeriesBegins{tolerance, (scalars + kError).raw(), go.raw()});
  stream.repeat_while(go, method_.max_iterations - 1, [this, n, goes_on](Stream& own) {
    series_factor(own, n);
    advance(own, n);
    measure(own, in(square(kM, n)), kNext);
    launch(own, 1, goes_on);
  });
  check_root(stream, n);
}

/// Whether A·X^p is near I: iterations that diverged leave it far away.
void InverseRoot::check_root(Stream& stream, std::int64_t n) const {
  constexpr double kFar = 0.1;
  const DevicePointer<double> distance = slot<double>(kScalars) + kNext;
  const MatrixIn raised = power(stream, in(square(kX, n)));
  device_.linear_algebra().product(stream, 1, in(square(kA, n)), Transpose::no, raised, Transpose::no, 0,
                                   square(kRest, n));
  measure(stream, in(square(kRest, n)), kNext);
  launch(stream, 1, IsNear{kFar, distance.raw(), (slot<std::int32_t>(kFlags) + kFound).raw()});
}

void InverseRoot::begin(Stream& stream, std::int64_t n, double numerator) const {
  launch(stream, n * n,
         Begin{numerator, (slot<double>(kScalars) + kSize).raw(), method_.kind == Kind::coupled_newton, 1.0 / p_, n,
               square(kA, n).data.raw(), square(kX, n).data.raw(), square(kM, n).data.raw()});
}

/// N = (1 + 1/p)·I − M/p
void InverseRoot::newton_factor(Stream& stream, std::int64_t n) const {
  const double alpha = -1.0 / p_;
  launch(stream, n * n,
         Affine{static_cast<float>(alpha), square(kM, n).data.raw(), static_cast<float>(1 - alpha), n,
                square(kN, n).data.raw()});
}

/// N = Σ b_i (I − M)^i, by Horner's rule.
void InverseRoot::series_factor(Stream& stream, std::int64_t n) const {
  const MatrixOut rest = square(kRest, n), N = square(kN, n), next = square(kSpare, n);
  const std::size_t last = series_.size() - 1;
  launch(stream, n * n, Affine{-1, square(kM, n).data.raw(), 1, n, rest.data.raw()});
  launch(stream, n * n,
         Affine{static_cast<float>(series_[last]), rest.data.raw(), static_cast<float>(series_[last - 1]), n,
                N.data.raw()});
  for (std::size_t i = last - 1; i-- > 0;) {
    device_.linear_algebra().product(stream, 1, in(N), Transpose::no, in(rest), Transpose::no, 0, next);
    launch(stream, n * n, Affine{1, next.data.raw(), static_cast<float>(series_[i]), n, N.data.raw()});
  }
}

/// X ← X·N, M ← N^p·M
void InverseRoot::advance(Stream& stream, std::int64_t n) const {
  LinearAlgebra& algebra = device_.linear_algebra();
  const MatrixOut X = square(kX, n), M = square(kM, n), N = square(kN, n), next = square(kRest, n);
  algebra.product(stream, 1, in(X), Transpose::no, in(N), Transpose::no, 0, next);
  launch(stream, n * n, Copy{next.data.raw(), X.data.raw()});
  algebra.product(stream, 1, power(stream, in(N)), Transpose::no, in(M), Transpose::no, 0, next);
  launch(stream, n * n, Copy{next.data.raw(), M.data.raw()});
}

/// base^p by squaring, the bits of p from the highest; in kSpare or kOther, or base itself.
MatrixIn InverseRoot::power(Stream& stream, MatrixIn base) const {
  LinearAlgebra& algebra = device_.linear_algebra();
  MatrixOut next = square(kSpare, base.rows), other = square(kOther, base.rows);
  MatrixIn result = base;
  int bit = 1;
  while (bit <= p_ / 2) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    const auto multiply = [&](MatrixIn by) {
      algebra.product(stream, 1, result, Transpose::no, by, Transpose::no, 0, next);
      result = in(next);
      std::swap(next, other);
    };
    multiply(result);
    if ((p_ & bit) != 0) multiply(base);
  }
  return result;
}

/// *scalar = the largest element of |M − I|
void InverseRoot::measure(Stream& stream, MatrixIn M, std::size_t scalar) const {
  launch_maximum(stream, M.size(), slot<double>(kScalars) + scalar, DistanceFromIdentity{M.data.raw(), M.rows});
}

}  // namespace canzona::optimized
