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
struct FirstMoment {
  float b1, one_minus_b1;
  const float* gradient;
  float* m;

  CANZONA_OPERANDS(gradient, m)
  CANZONA_KERNEL void operator()(float g, float& own) const { own = b1 * own + one_minus_b1 * g; }
};

/// v ← β₂v + (1 − β₂)G'², G' the projected gradient.
struct SecondMoment {
  float b2, one_minus_b2;
  const float* projected;
  float* v;

  CANZONA_OPERANDS(projected, v)
  CANZONA_KERNEL void operator()(float g, float& own) const { own = b2 * own + one_minus_b2 * (g * g); }
};

/// m' ← m'/(√v + eps), m' the projected first moment.
struct Ratio {
  float eps;
  const float* projected;
  const float* v;
  float* to;

  CANZONA_OPERANDS(projected, v, Out{to})
  CANZONA_KERNEL void operator()(float m, float own_v, float& ratio) const { ratio = m / (std::sqrt(own_v) + eps); }
};

/// to ← U/(1e-30 + RMS of U)·scale; without a sum U·scale.
struct Finish {
  const double* squares;
  double size;
  const StepValues* values;
  const float* direction;
  float* to;
  float scale = 0;

  CANZONA_KERNEL void load() { scale = values->corrections.first; }
  CANZONA_OPERANDS(direction, Out{to})
  CANZONA_KERNEL void operator()(float value, float& own) const {
    if (squares != nullptr) value /= static_cast<float>(1e-30 + std::sqrt(*squares) / std::sqrt(size));
    own = value * scale;
  }
};

/// Q ← V with its columns in reverse, by descending eigenvalue, where there is a V; else the side has failed.
struct TakeReversed {
  const std::int32_t* found;
  const float* V;
  std::int64_t cols;
  float* Q;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    const std::int64_t col = i % cols;
    if (*found != 0) Q[i] = V[i - col + cols - 1 - col];
  }
};

/// Of a sum over column j, element i of the transpose: (QᵀAQ)_jj.
struct Estimate {
  const float* Q;
  const float* AQ;
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
struct Permute {
  const std::int32_t* ranks;
  bool rows;
  std::int64_t cols;
  const float* from;
  float* to;
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
struct Side {
  bool left;
  MatrixOut factor;
  MatrixOut basis;
};

/// The state of one matrix of the stack.
struct Moments {
  DevicePointer<float> m;  ///< in the original space
  DevicePointer<float> v;  ///< in the eigenbasis
  std::vector<Side> sides;
};

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
      Moments& moments = matrices_.emplace_back();
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
    const MatrixOut G = projected(kG);
    bool refreshed = first;
    for (std::size_t index = 0; index < matrices_.size(); ++index) {
      const Moments& own = matrices_[index];
      const std::int64_t place = static_cast<std::int64_t>(index) * shape_.numel();
      launch(stream, G.size(), TakeGradient{values.raw(), (gradient + place).raw(), G.data.raw()});
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
      for (const Side& side : own.sides) refresh(stream, own, side);
      failed_.end_matrix(stream);
    }
    if (refreshed) failed_.end_refresh(stream);
  }

  std::int64_t failed_refreshes() const override { return failed_.known(); }

 private:
  /// Of a step after the first.
  bool is_refresh(std::int64_t number, std::int64_t turn) const {
    return (number - (skips_first_ ? 1 : 0) + turn) % period_ == 0;
  }

  void reserve(std::int64_t longest) {
    constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
    for (const Slot slot : {kG, kProjected, kRatio, kSpare}) workspace_.reserve(slot, shape_.numel() * kFloat);
    for (const Slot slot : {kProduct, kBasis}) workspace_.reserve(slot, longest * longest * kFloat);
    workspace_.reserve(kEstimates, longest * static_cast<std::int64_t>(sizeof(double)));
    workspace_.reserve(kValues, longest * kFloat);
    workspace_.reserve(kRanks, longest * static_cast<std::int64_t>(sizeof(std::int32_t)));
    workspace_.reserve(kSums, kSumCount * sizeof(double));
    workspace_.reserve(kFlags, sizeof(std::int32_t));
    workspace_.reserve(kWork, device_.linear_algebra().factorization_bytes(longest));
  }

  DevicePointer<float> take(std::int64_t count) {
    memory_.push_back(device_.allocate_elements<float>(count));
    return memory_.back().as<float>();
  }

  MatrixOut projected(Slot slot) const { return {workspace_.slot<float>(slot), shape_.rows, shape_.cols}; }
  MatrixOut square(Slot slot, std::int64_t n) const { return {workspace_.slot<float>(slot), n, n}; }

  /// Qᵀ_left·X·Q_right, or back: Q_left·X·Qᵀ_right; in `to`, by way of kSpare.
  MatrixIn rotate(Stream& stream, const Moments& own, MatrixIn X, bool back, MatrixOut to) {
    LinearAlgebra& algebra = device_.linear_algebra();
    for (std::size_t index = 0; index < own.sides.size(); ++index) {
      const Side& side = own.sides[index];
      const MatrixOut next = index + 1 == own.sides.size() ? to : projected(kSpare);
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
  void accumulate(Stream& stream, const Moments& own, MatrixIn G) {
    for (const Side& side : own.sides) {
      device_.linear_algebra().symmetric_product(stream, static_cast<float>(1 - shampoo_beta_), G,
                                                 side.left ? Transpose::no : Transpose::yes,
                                                 static_cast<float>(shampoo_beta_), side.factor);
    }
  }

  /// The eigenvectors of A + 1e-30·I; axes where there are none.
  void first_bases(Stream& stream, const Moments& own, MatrixIn G) {
    accumulate(stream, own, G);
    const DevicePointer<std::int32_t> found = workspace_.slot<std::int32_t>(kFlags);
    for (const Side& side : own.sides) {
      const std::int64_t n = side.factor.rows;
      const MatrixOut V = square(kBasis, n);
      launch(stream, V.size(), SetIdentity{n, side.basis.data.raw()});
      launch(stream, V.size(), Copy{side.factor.data.raw(), V.data.raw()});
      launch(stream, n, AddToDiagonal{1e-30f, n, V.data.raw()});
      device_.linear_algebra().eigh(stream, V, workspace_.slot<float>(kValues), found,
                                    workspace_.slot<std::byte>(kWork));
      launch(stream, V.size(), TakeReversed{found.raw(), V.data.raw(), n, side.basis.data.raw()});
      launch(stream, 1, CountFailure{found.raw(), failed_.flag().raw()});
    }
    failed_.end_matrix(stream);
  }

  /// The Adam step in the bases that the gradient has not yet touched, and back.
  void adam(Stream& stream, DevicePointer<const StepValues> values, const Moments& own, MatrixIn G,
            DevicePointer<float> update) {
    const std::int64_t numel = shape_.numel();
    const MatrixIn gradient = rotate(stream, own, G, false, projected(kProjected));
    launch(stream, numel,
           FirstMoment{static_cast<float>(beta1_), static_cast<float>(1 - beta1_), G.data.raw(), own.m.raw()});
    launch(stream, numel,
           SecondMoment{static_cast<float>(beta2_), static_cast<float>(1 - beta2_), gradient.data.raw(), own.v.raw()});
    const MatrixIn moment = rotate(stream, own, {own.m, shape_.rows, shape_.cols}, false, projected(kProjected));
    const MatrixOut ratio = projected(kRatio);
    launch(stream, numel, Ratio{static_cast<float>(eps_), moment.data.raw(), own.v.raw(), ratio.data.raw()});
    const MatrixIn direction = rotate(stream, own, in(ratio), true, projected(kProjected));
    const DevicePointer<double> squares = workspace_.slot<double>(kSums) + kSquares;
    if (normalize_) launch_sums(stream, 1, numel, squares, Square{direction.data.raw()});
    launch(stream, numel,
           Finish{normalize_ ? squares.raw() : nullptr, static_cast<double>(numel), values.raw(), direction.data.raw(),
                  update.raw()});
  }

  /// Columns in the order of diag(QᵀAQ), descending, v permuted along; then one power step and QR: Q ← qr(A·Q). Where
  /// that is not finite, Q and v stay.
  void refresh(Stream& stream, const Moments& own, const Side& side) {
    LinearAlgebra& algebra = device_.linear_algebra();
    const std::int64_t n = side.factor.rows, numel = shape_.numel();
    const MatrixOut AQ = square(kProduct, n), basis = square(kBasis, n), v = projected(kSpare);
    const DevicePointer<double> sums = workspace_.slot<double>(kSums), estimates = workspace_.slot<double>(kEstimates);
    const DevicePointer<std::int32_t> ranks = workspace_.slot<std::int32_t>(kRanks);
    const DevicePointer<std::int32_t> good = workspace_.slot<std::int32_t>(kFlags);
    algebra.product(stream, 1, in(side.factor), Transpose::no, in(side.basis), Transpose::no, 0, AQ);
    launch_sums(stream, 1, n * n, sums + kSpoiltProduct, NotFinite{AQ.data.raw()});
    launch_sums(stream, n, n, estimates, Estimate{side.basis.data.raw(), AQ.data.raw(), n});
    launch(stream, n, Rank{estimates.raw(), n, ranks.raw()});
    launch(stream, n * n, Permute{ranks.raw(), false, n, AQ.data.raw(), basis.data.raw()});
    algebra.qr(stream, basis, workspace_.slot<std::byte>(kWork));
    launch_sums(stream, 1, n * n, sums + kSpoiltBasis, NotFinite{basis.data.raw()});
    launch(stream, 1, Judge{sums.raw(), good.raw()});
    launch(stream, 1, CountFailure{good.raw(), failed_.flag().raw()});
    launch(stream, n * n, CopyIf{good.raw(), basis.data.raw(), side.basis.data.raw()});
    launch(stream, numel, Permute{ranks.raw(), side.left, shape_.cols, own.v.raw(), v.data.raw()});
    launch(stream, numel, CopyIf{good.raw(), v.data.raw(), own.v.raw()});
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
  std::vector<Moments> matrices_;
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
    .make = [](const Preparation& own) { return std::make_unique<Soap>(own); },
    .corrections = corrections,
}};

}  // namespace
}  // namespace canzona::optimized
