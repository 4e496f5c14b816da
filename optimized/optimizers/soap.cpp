// SOAP on a device. Must equal reference/optimizers/soap.cpp. Columns are sorted and bases kept by flags and ranks on
// the device; nothing is decided on the host.
#include <algorithm>
#include <cmath>

#include "optimized/optimizers/refresh.hpp"

namespace canzona::optimized {
namespace {

/// Slots of the workspace: G; three projected matrices; of a side A·Q, the same with its columns sorted and then its
/// basis, estimated eigenvalues, the columns' ranks and found ones; sums; flags; work memory of factorizations.
enum Slot : std::size_t {
  kG,
  kProjected,
  kRatio,
  kSpare,
  kProduct,
  kBasis,
  kEstimates,
  kValues,
  kRanks,
  kSums,
  kFlags,
  kWork
};

/// Doubles of kSums: elements of A·Q and of the basis that are not finite; ‖U‖².
enum Sum : std::size_t { kSpoiltProduct, kSpoiltBasis, kSquares, kSumCount };

/// m ← β₁m + (1 − β₁)G
template <class T>
struct FirstMoment {
  T b1, one_minus_b1;
  const T* gradient;
  T* m;

  CANZONA_OPERANDS(gradient, m)
  CANZONA_KERNEL void operator()(T g, T& own) const { own = b1 * own + one_minus_b1 * g; }
};

/// v ← β₂v + (1 − β₂)G'², G' the projected gradient.
template <class T>
struct SecondMoment {
  T b2, one_minus_b2;
  const T* projected;
  T* v;

  CANZONA_OPERANDS(projected, v)
  CANZONA_KERNEL void operator()(T g, T& own) const { own = b2 * own + one_minus_b2 * (g * g); }
};

/// m' ← m'/(√v + eps), m' the projected first moment.
template <class T>
struct Ratio {
  T eps;
  const T* projected;
  const T* v;
  T* to;

  CANZONA_OPERANDS(projected, v, Out{to})
  CANZONA_KERNEL void operator()(T m, T own_v, T& ratio) const { ratio = m / (std::sqrt(own_v) + eps); }
};

/// to ← U/(1e-30 + RMS of U)·scale; without a sum U·scale.
template <class T>
struct Finish {
  const double* squares;
  double size;
  const StepValues* values;
  const T* direction;
  float* to;
  T scale = 0;

  CANZONA_KERNEL void load() { scale = values->corrections.first; }
  CANZONA_OPERANDS(direction, Out{to})
  CANZONA_KERNEL void operator()(T value, float& own) const {
    if (squares != nullptr) value /= static_cast<T>(1e-30 + std::sqrt(*squares) / std::sqrt(size));
    own = static_cast<float>(value * scale);
  }
};

/// Q ← V with its columns in reverse, by descending eigenvalue, where there is a V; else the side has failed.
template <class T>
struct TakeReversed {
  const std::int32_t* found;
  const T* V;
  std::int64_t cols;
  T* Q;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const std::int64_t col = i % cols;
    if (*found != 0) Q[i] = V[i - col + cols - 1 - col];
  }
};

/// Of a sum over column j, element i of the transpose: (QᵀAQ)_jj.
template <class T>
struct Estimate {
  const T* Q;
  const T* AQ;
  std::int64_t n;
  CANZONA_KERNEL double operator()(std::int64_t i) const {
    const std::int64_t at = (i % n) * n + i / n;
    return static_cast<double>(Q[at]) * static_cast<double>(AQ[at]);
  }
};

/// How many columns come before column j in descending order of their estimates, equal ones in the order they have.
/// Counting takes n² comparisons beside the n³ of the factorization, and no memory.
struct Rank {
  const double* estimates;
  std::int64_t n;
  std::int32_t* ranks;
  CANZONA_KERNEL void operator()(std::int64_t j) {
    std::int32_t before = 0;
    for (std::int64_t other = 0; other < n; ++other) {
      const bool first = estimates[other] > estimates[j] || (estimates[other] == estimates[j] && other < j);
      before += first ? 1 : 0;
    }
    ranks[j] = before;
  }
};

/// Column c goes to column ranks[c]; or row r to row ranks[r].
template <class T>
struct Permute {
  const std::int32_t* ranks;
  bool rows;
  std::int64_t cols;
  const T* from;
  T* to;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const std::int64_t row = i / cols, col = i % cols;
    to[rows ? ranks[row] * cols + col : row * cols + ranks[col]] = from[i];
  }
};

struct Judge {
  const double* sums;
  std::int32_t* good;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    *good = sums[kSpoiltProduct] == 0 && sums[kSpoiltBasis] == 0 ? 1 : 0;
  }
};

struct CountFailure {
  const std::int32_t* good;
  std::int32_t* failed;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) { *failed = *good != 0 ? *failed : 1; }
};

/// A preconditioned side.
template <class T>
struct Side {
  bool left;
  MatrixView<T> factor;
  MatrixView<T> basis;
};

/// The state of one matrix of the stack.
template <class T>
struct Moments {
  DevicePointer<T> m;  ///< in the original space
  DevicePointer<T> v;  ///< in the eigenbasis
  std::vector<Side<T>> sides;
};

/// In T: float or double.
template <class T>
class Soap final : public MatrixOptimizer {
 public:
  explicit Soap(const Preparation& own)
      : device_(own.device),
        workspace_(own.workspace),
        shape_(own.shape),
        beta1_(own.options.number("beta1")),
        beta2_(own.options.number("beta2")),
        shampoo_beta_(own.options.number("shampoo_beta") < 0 ? beta2_ : own.options.number("shampoo_beta")),
        eps_(own.options.number("eps")),
        period_(own.options.integer("precondition_frequency")),
        normalize_(own.options.is("normalize_grads", "on")),
        skips_first_(own.options.is("first_step", "skip")),
        turns_(own.turns),
        failed_(device_) {
    const std::int64_t limit = own.options.integer("max_precond_dim");
    reserve(std::max(shape_.rows <= limit ? shape_.rows : 0, shape_.cols <= limit ? shape_.cols : 0));
    for (std::int64_t index = 0; index < own.count(); ++index) {
      Moments<T>& moments = matrices_.emplace_back();
      moments.m = take(shape_.numel());
      moments.v = take(shape_.numel());
      for (const bool left : {true, false}) {
        const std::int64_t n = left ? shape_.rows : shape_.cols;
        if (n <= limit) moments.sides.push_back({left, {take(n * n), n, n}, {take(n * n), n, n}});
      }
    }
  }

  std::optional<std::int64_t> form(std::int64_t number) const override {
    if (number == 1) return std::nullopt;
    for (const std::int64_t turn : turns_) {
      if (is_refresh(number, turn)) return std::nullopt;
    }
    return 0;
  }

  void step(Stream& stream, std::int64_t number, DevicePointer<const StepValues> values,
            DevicePointer<const float> gradient, DevicePointer<float> update) override {
    const bool first = number == 1;
    const bool moves = !first || !skips_first_;
    const Out G = projected(kG);
    bool refreshed = first;
    for (std::size_t index = 0; index < matrices_.size(); ++index) {
      const Moments<T>& own = matrices_[index];
      const std::int64_t place = static_cast<std::int64_t>(index) * shape_.numel();
      launch(stream, G.size(), TakeGradient<T>{values.raw(), (gradient + place).raw(), G.data.raw()});
      if (first) first_bases(stream, own, in(G));
      if (moves) {
        adam(stream, values, own, in(G), update + place);
      } else {
        launch(stream, G.size(), Fill<float>{0, (update + place).raw()});
      }
      if (first) continue;
      accumulate(stream, own, in(G));
      if (!is_refresh(number, turns_[index])) continue;
      refreshed = true;
      for (const Side<T>& side : own.sides) refresh(stream, own, side);
      failed_.end_matrix(stream);
    }
    if (refreshed) failed_.end_refresh(stream);
  }

  std::int64_t failed_refreshes() const override { return failed_.known(); }

 private:
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;

  MatrixProducts<T>& products() { return device_.linear_algebra().template in<T>(); }
  Factorizations<T>& factorizations() { return device_.linear_algebra().template factorizations<T>(); }

  /// Of a step after the first.
  bool is_refresh(std::int64_t number, std::int64_t turn) const {
    return (number - (skips_first_ ? 1 : 0) + turn) % period_ == 0;
  }

  void reserve(std::int64_t longest) {
    constexpr auto kOwn = static_cast<std::int64_t>(sizeof(T));
    for (const Slot slot : {kG, kProjected, kRatio, kSpare}) workspace_.reserve(slot, shape_.numel() * kOwn);
    for (const Slot slot : {kProduct, kBasis}) workspace_.reserve(slot, longest * longest * kOwn);
    workspace_.reserve(kEstimates, longest * static_cast<std::int64_t>(sizeof(double)));
    workspace_.reserve(kValues, longest * kOwn);
    workspace_.reserve(kRanks, longest * static_cast<std::int64_t>(sizeof(std::int32_t)));
    workspace_.reserve(kSums, kSumCount * sizeof(double));
    workspace_.reserve(kFlags, sizeof(std::int32_t));
    workspace_.reserve(kWork, factorizations().bytes(longest));
  }

  DevicePointer<T> take(std::int64_t count) {
    memory_.push_back(device_.allocate_elements<T>(count));
    return memory_.back().as<T>();
  }

  Out projected(Slot slot) const { return {workspace_.slot<T>(slot), shape_.rows, shape_.cols}; }
  Out square(Slot slot, std::int64_t n) const { return {workspace_.slot<T>(slot), n, n}; }

  /// Qᵀ_left·X·Q_right, or back: Q_left·X·Qᵀ_right; in `to`, by way of kSpare.
  In rotate(Stream& stream, const Moments<T>& own, In X, bool back, Out to) {
    MatrixProducts<T>& algebra = products();
    for (std::size_t index = 0; index < own.sides.size(); ++index) {
      const Side<T>& side = own.sides[index];
      const Out next = index + 1 == own.sides.size() ? to : projected(kSpare);
      if (side.left) {
        algebra.product(stream, 1, in(side.basis), back ? Transpose::no : Transpose::yes, X, Transpose::no, 0, next);
      } else {
        algebra.product(stream, 1, X, Transpose::no, in(side.basis), back ? Transpose::yes : Transpose::no, 0, next);
      }
      X = in(next);
    }
    return X;
  }

  /// A ← β·A + (1 − β)·(left: G·Gᵀ, right: Gᵀ·G)
  void accumulate(Stream& stream, const Moments<T>& own, In G) {
    for (const Side<T>& side : own.sides) {
      products().symmetric_product(stream, static_cast<T>(1 - shampoo_beta_), G,
                                   side.left ? Transpose::no : Transpose::yes, static_cast<T>(shampoo_beta_),
                                   side.factor);
    }
  }

  /// The eigenvectors of A + 1e-30·I; axes where there are none.
  void first_bases(Stream& stream, const Moments<T>& own, In G) {
    accumulate(stream, own, G);
    const DevicePointer<std::int32_t> found = workspace_.slot<std::int32_t>(kFlags);
    for (const Side<T>& side : own.sides) {
      const std::int64_t n = side.factor.rows;
      const Out V = square(kBasis, n);
      launch(stream, V.size(), SetIdentity<T>{n, side.basis.data.raw()});
      launch(stream, V.size(), Copy<T>{side.factor.data.raw(), V.data.raw()});
      launch(stream, n, AddToDiagonal<T>{static_cast<T>(1e-30), n, V.data.raw()});
      factorizations().eigh(stream, V, workspace_.slot<T>(kValues), found, workspace_.slot<std::byte>(kWork));
      launch(stream, V.size(), TakeReversed<T>{found.raw(), V.data.raw(), n, side.basis.data.raw()});
      launch(stream, 1, CountFailure{found.raw(), failed_.flag().raw()});
    }
    failed_.end_matrix(stream);
  }

  /// The Adam step in the bases that the gradient has not yet touched, and back.
  void adam(Stream& stream, DevicePointer<const StepValues> values, const Moments<T>& own, In G,
            DevicePointer<float> update) {
    const std::int64_t numel = shape_.numel();
    const In gradient = rotate(stream, own, G, false, projected(kProjected));
    launch(stream, numel,
           FirstMoment<T>{static_cast<T>(beta1_), static_cast<T>(1 - beta1_), G.data.raw(), own.m.raw()});
    launch(stream, numel,
           SecondMoment<T>{static_cast<T>(beta2_), static_cast<T>(1 - beta2_), gradient.data.raw(), own.v.raw()});
    const In moment = rotate(stream, own, {own.m, shape_.rows, shape_.cols}, false, projected(kProjected));
    const Out ratio = projected(kRatio);
    launch(stream, numel, Ratio<T>{static_cast<T>(eps_), moment.data.raw(), own.v.raw(), ratio.data.raw()});
    const In direction = rotate(stream, own, in(ratio), true, projected(kProjected));
    const DevicePointer<double> squares = workspace_.slot<double>(kSums) + kSquares;
    if (normalize_) launch_sums(stream, 1, numel, squares, Square<T>{direction.data.raw()});
    launch(stream, numel,
           Finish<T>{normalize_ ? squares.raw() : nullptr, static_cast<double>(numel), values.raw(),
                     direction.data.raw(), update.raw()});
  }

  /// Columns in the order of diag(QᵀAQ), descending, v permuted along; then one power step and QR: Q ← qr(A·Q). Where
  /// that is not finite, Q and v stay.
  void refresh(Stream& stream, const Moments<T>& own, const Side<T>& side) {
    MatrixProducts<T>& algebra = products();
    const std::int64_t n = side.factor.rows, numel = shape_.numel();
    const Out AQ = square(kProduct, n), basis = square(kBasis, n), v = projected(kSpare);
    const DevicePointer<double> sums = workspace_.slot<double>(kSums), estimates = workspace_.slot<double>(kEstimates);
    const DevicePointer<std::int32_t> ranks = workspace_.slot<std::int32_t>(kRanks);
    const DevicePointer<std::int32_t> good = workspace_.slot<std::int32_t>(kFlags);
    algebra.product(stream, 1, in(side.factor), Transpose::no, in(side.basis), Transpose::no, 0, AQ);
    launch_sums(stream, 1, n * n, sums + kSpoiltProduct, NotFinite<T>{AQ.data.raw()});
    launch_sums(stream, n, n, estimates, Estimate<T>{side.basis.data.raw(), AQ.data.raw(), n});
    launch(stream, n, Rank{estimates.raw(), n, ranks.raw()});
    launch(stream, n * n, Permute<T>{ranks.raw(), false, n, AQ.data.raw(), basis.data.raw()});
    factorizations().qr(stream, basis, workspace_.slot<std::byte>(kWork));
    launch_sums(stream, 1, n * n, sums + kSpoiltBasis, NotFinite<T>{basis.data.raw()});
    launch(stream, 1, Judge{sums.raw(), good.raw()});
    launch(stream, 1, CountFailure{good.raw(), failed_.flag().raw()});
    launch(stream, n * n, CopyIf<T>{good.raw(), basis.data.raw(), side.basis.data.raw()});
    launch(stream, numel, Permute<T>{ranks.raw(), side.left, shape_.cols, own.v.raw(), v.data.raw()});
    launch(stream, numel, CopyIf<T>{good.raw(), v.data.raw(), own.v.raw()});
  }

  Device& device_;
  Workspace& workspace_;
  Shape shape_;
  double beta1_;
  double beta2_;
  double shampoo_beta_;
  double eps_;
  std::int64_t period_;
  bool normalize_;
  bool skips_first_;
  std::vector<std::int64_t> turns_;
  FailedRefreshes failed_;
  std::vector<Buffer> memory_;
  std::vector<Moments<T>> matrices_;
};

/// √(1 − β₂ᵗ)/(1 − β₁ᵗ), which scales the update, t counting from the first step that moves; 1 where none is asked for.
Corrections corrections(const Options& options, std::int64_t number) {
  const auto t = static_cast<double>(number - (options.is("first_step", "skip") ? 1 : 0));
  if (!options.is("correct_bias", "on") || t == 0) return {};
  const double beta1 = options.number("beta1"), beta2 = options.number("beta2");
  return {static_cast<float>(std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)))};
}

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "soap",
    .order = 2,
    .make = make_wide<Soap>,
    .corrections = corrections,
    .has_fp64 = true,
}};

}  // namespace
}  // namespace canzona::optimized
