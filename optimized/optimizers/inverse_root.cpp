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

template <class T>
struct Divide {
  T divisor;
  const T* from;
  T* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = from[i] / divisor; }
};

template <class T>
struct Magnitude {
  const T* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return std::abs(static_cast<double>(values[i])); }
};

struct Value {
  const double* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return values[i]; }
};

template <class T>
struct Diagonal {
  const T* matrix;
  std::int64_t cols;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return static_cast<double>(matrix[i * cols + i]); }
};

/// |M − I|, element by element.
template <class T>
struct DistanceFromIdentity {
  const T* matrix;
  std::int64_t cols;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    const T one = i % (cols + 1) == 0 ? 1 : 0;
    return std::abs(static_cast<double>(matrix[i] - one));
  }
};

/// A ← A + max(ε, ε_rel·largest row sum)·I; i counts rows.
template <class T>
struct Ridge {
  double epsilon;
  double relative;
  const double* largest_row;
  std::int64_t cols;
  T* matrix;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const double scaled = relative * *largest_row;
    matrix[i * cols + i] += static_cast<T>(scaled > epsilon ? scaled : epsilon);
  }
};

/// λ^(−1/p); of eigenvalues below ε, all are shifted so that the smallest, which is the first, equals it.
template <class T>
struct Powers {
  const T* values;
  T least;
  T exponent;
  T* powers;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const T shift = values[0] < least ? least - values[0] : 0;
    powers[i] = std::pow(values[i] + shift, exponent);
  }
};

/// V·diag(powers)
template <class T>
struct ScaleColumns {
  const T* matrix;
  const T* powers;
  std::int64_t cols;
  T* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = matrix[i] * powers[i % cols]; }
};

/// X = z^(1/p)·I, M = z·A with z = numerator/size, where size is what a sum holds, or its square root.
template <class T>
struct Begin {
  double numerator;
  const double* sum;
  bool squared;
  double inverse_root;
  std::int64_t cols;
  const T* A;
  T* X;
  T* M;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const double z = numerator / (squared ? std::sqrt(*sum) : *sum);
    X[i] = i % (cols + 1) == 0 ? static_cast<T>(std::pow(z, inverse_root)) : 0;
    M[i] = static_cast<T>(z) * A[i];
  }
};

/// to ← a·M + b·I
template <class T>
struct Affine {
  T a;
  const T* M;
  T b;
  std::int64_t cols;
  T* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] = a * M[i] + (i % (cols + 1) == 0 ? b : 0); }
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

template <class T>
InverseRoot<T>::InverseRoot(Device& device, Workspace& workspace, std::size_t first_slot, std::int64_t longest,
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
  const std::int64_t own = longest * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t doubles = longest * static_cast<std::int64_t>(sizeof(double));
  for (std::size_t index = kA; index <= (eigen ? kM : kRest); ++index)
    workspace.reserve(first_slot + index, longest * own);
  workspace.reserve(first_slot + kValues, own);
  workspace.reserve(first_slot + kPowers, own);
  workspace.reserve(first_slot + kRowSums, doubles);
  workspace.reserve(first_slot + kScalars, kScalarCount * sizeof(double));
  workspace.reserve(first_slot + kFlags, kFlagCount * sizeof(std::int32_t));
  if (eigen) workspace.reserve(first_slot + kWork, factorizations().bytes(longest));
}

template <class T>
void InverseRoot<T>::compute(Stream& stream, In A, T divisor, Out X, DevicePointer<std::int32_t> failed) const {
  const std::int64_t n = A.rows;
  const DevicePointer<double> scalars = slot<double>(kScalars);
  const DevicePointer<std::int32_t> flags = slot<std::int32_t>(kFlags);
  launch(stream, A.size(), Divide<T>{divisor, A.data.raw(), square(kA, n).data.raw()});
  launch_sums(stream, 1, A.size(), scalars + kSpoiltInput, NotFinite<T>{square(kA, n).data.raw()});
  add_ridge(stream, n);
  switch (method_.kind) {
    case Kind::eigen: by_eigenvalues(stream, n); break;
    case Kind::coupled_newton: by_newton(stream, n); break;
    case Kind::coupled_higher_order: by_series(stream, n); break;
  }
  const Out found = square(kX, n);
  launch_sums(stream, 1, found.size(), scalars + kSpoiltRoot, NotFinite<T>{found.data.raw()});
  launch(stream, 1, Judge{scalars.raw(), flags.raw(), failed.raw()});
  launch(stream, X.size(), CopyIf<T>{(flags + kGood).raw(), found.data.raw(), X.data.raw()});
}

template <class T>
void InverseRoot<T>::add_ridge(Stream& stream, std::int64_t n) const {
  const Out A = square(kA, n);
  const DevicePointer<double> largest_row = slot<double>(kScalars) + kLargestRow;
  const bool relative = method_.kind == Kind::coupled_higher_order;
  if (relative) {
    launch_sums(stream, n, n, slot<double>(kRowSums), Magnitude<T>{A.data.raw()});
    launch_maximum(stream, n, largest_row, Value{slot<double>(kRowSums).raw()});
  }
  launch(stream, n, Ridge<T>{epsilon_, relative ? method_.rel_epsilon : 0, largest_row.raw(), n, A.data.raw()});
}

/// A + εI = V diag(λ) Vᵀ  →  X = V diag(λ^(−1/p)) Vᵀ
template <class T>
void InverseRoot<T>::by_eigenvalues(Stream& stream, std::int64_t n) const {
  MatrixProducts<T>& algebra = products();
  const Out V = square(kA, n), scaled = square(kM, n);
  const DevicePointer<T> values = slot<T>(kValues), powers = slot<T>(kPowers);
  factorizations().eigh(stream, V, values, slot<std::int32_t>(kFlags) + kFound, slot<std::byte>(kWork));
  launch(stream, n, Powers<T>{values.raw(), static_cast<T>(epsilon_), static_cast<T>(-1 / root_), powers.raw()});
  launch(stream, V.size(), ScaleColumns<T>{V.data.raw(), powers.raw(), n, scaled.data.raw()});
  algebra.product(stream, 1, in(scaled), Transpose::no, in(V), Transpose::yes, 0, square(kX, n));
}

/// z = (p + 1)/(2‖A‖_F) puts every eigenvalue of M where Newton's iteration converges.
template <class T>
void InverseRoot<T>::by_newton(Stream& stream, std::int64_t n) const {
  const DevicePointer<double> error = slot<double>(kScalars) + kError;
  const DevicePointer<std::int32_t> flags = slot<std::int32_t>(kFlags);
  const NewtonGoesOn goes_on{method_.tolerance.value_or(1e-6), error.raw(), (flags + kGo).raw()};
  launch_sums(stream, 1, n * n, slot<double>(kScalars) + kSize, Square<T>{square(kA, n).data.raw()});
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
template <class T>
void InverseRoot<T>::by_series(Stream& stream, std::int64_t n) const {
  const DevicePointer<double> scalars = slot<double>(kScalars);
  const DevicePointer<std::int32_t> go = slot<std::int32_t>(kFlags) + kGo;
  const double tolerance = method_.tolerance.value_or(1e-8);
  const SeriesGoesOn goes_on{tolerance, (scalars + kError).raw(), (scalars + kNext).raw(), go.raw()};
  launch_sums(stream, 1, n, scalars + kSize, Diagonal<T>{square(kA, n).data.raw(), n});
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
template <class T>
void InverseRoot<T>::check_root(Stream& stream, std::int64_t n) const {
  constexpr double kFar = 0.1;
  const DevicePointer<double> distance = slot<double>(kScalars) + kNext;
  const In raised = power(stream, in(square(kX, n)));
  products().product(stream, 1, in(square(kA, n)), Transpose::no, raised, Transpose::no, 0, square(kRest, n));
  measure(stream, in(square(kRest, n)), kNext);
  launch(stream, 1, IsNear{kFar, distance.raw(), (slot<std::int32_t>(kFlags) + kFound).raw()});
}

template <class T>
void InverseRoot<T>::begin(Stream& stream, std::int64_t n, double numerator) const {
  launch(stream, n * n,
         Begin<T>{numerator, (slot<double>(kScalars) + kSize).raw(), method_.kind == Kind::coupled_newton, 1.0 / p_, n,
                  square(kA, n).data.raw(), square(kX, n).data.raw(), square(kM, n).data.raw()});
}

/// N = (1 + 1/p)·I − M/p
template <class T>
void InverseRoot<T>::newton_factor(Stream& stream, std::int64_t n) const {
  const double alpha = -1.0 / p_;
  launch(stream, n * n,
         Affine<T>{static_cast<T>(alpha), square(kM, n).data.raw(), static_cast<T>(1 - alpha), n,
                   square(kN, n).data.raw()});
}

/// N = Σ b_i (I − M)^i, by Horner's rule.
template <class T>
void InverseRoot<T>::series_factor(Stream& stream, std::int64_t n) const {
  const Out rest = square(kRest, n), N = square(kN, n), next = square(kSpare, n);
  const std::size_t last = series_.size() - 1;
  launch(stream, n * n, Affine<T>{-1, square(kM, n).data.raw(), 1, n, rest.data.raw()});
  launch(stream, n * n,
         Affine<T>{static_cast<T>(series_[last]), rest.data.raw(), static_cast<T>(series_[last - 1]), n, N.data.raw()});
  for (std::size_t i = last - 1; i-- > 0;) {
    products().product(stream, 1, in(N), Transpose::no, in(rest), Transpose::no, 0, next);
    launch(stream, n * n, Affine<T>{1, next.data.raw(), static_cast<T>(series_[i]), n, N.data.raw()});
  }
}

/// X ← X·N, M ← N^p·M
template <class T>
void InverseRoot<T>::advance(Stream& stream, std::int64_t n) const {
  MatrixProducts<T>& algebra = products();
  const Out X = square(kX, n), M = square(kM, n), N = square(kN, n), next = square(kRest, n);
  algebra.product(stream, 1, in(X), Transpose::no, in(N), Transpose::no, 0, next);
  launch(stream, n * n, Copy<T>{next.data.raw(), X.data.raw()});
  algebra.product(stream, 1, power(stream, in(N)), Transpose::no, in(M), Transpose::no, 0, next);
  launch(stream, n * n, Copy<T>{next.data.raw(), M.data.raw()});
}

/// base^p by squaring, the bits of p from the highest; in kSpare or kOther, or base itself.
template <class T>
MatrixView<const T> InverseRoot<T>::power(Stream& stream, In base) const {
  MatrixProducts<T>& algebra = products();
  Out next = square(kSpare, base.rows), other = square(kOther, base.rows);
  In result = base;
  int bit = 1;
  while (bit <= p_ / 2) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    const auto multiply = [&](In by) {
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
template <class T>
void InverseRoot<T>::measure(Stream& stream, In M, std::size_t scalar) const {
  launch_maximum(stream, M.size(), slot<double>(kScalars) + scalar, DistanceFromIdentity<T>{M.data.raw(), M.rows});
}

template class InverseRoot<float>;
template class InverseRoot<double>;

}  // namespace canzona::optimized
