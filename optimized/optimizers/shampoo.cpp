// Shampoo on a device. Must equal reference/optimizers/shampoo.cpp.
#include <algorithm>
#include <cmath>

#include "optimized/optimizers/inverse_root.hpp"
#include "optimized/optimizers/refresh.hpp"
#include "reference/optimizers/shampoo.hpp"

namespace canzona::optimized {
namespace {

using reference::Grafting;

/// Slots of the workspace, each for one tile: its gradient, the filtered gradient M̂ and the grafted direction D where
/// they are no state, the products with the roots, ‖P‖² and ‖D‖², the scale of the update; then those of InverseRoot.
enum Slot : std::size_t { kG, kFiltered, kGrafted, kLeft, kRight, kSquares, kScale, kRoots };

/// A tile of a matrix, to ← factor·tile.
template <class T>
struct TakeTile {
  const StepValues* values;
  const float* matrix;  // from the tile's first element
  std::int64_t stride;  // of the matrix
  std::int64_t cols;    // of the tile
  T* to;
  T factor = 0;

  CANZONA_KERNEL void load() { factor = values->factor; }
  CANZONA_KERNEL void operator()(std::int64_t i) {
    to[i] = factor * static_cast<T>(matrix[stride == cols ? i : (i / cols) * stride + i % cols]);
  }
};

/// A tile of a matrix ← scale·from
template <class T>
struct PutTile {
  const T* scale;
  const T* from;
  std::int64_t stride;
  std::int64_t cols;
  float* matrix;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    matrix[stride == cols ? i : (i / cols) * stride + i % cols] = static_cast<float>(*scale * from[i]);
  }
};

/// m ← β₁m + (1 − β₁)G; M̂ = m/(1 − β₁ᵗ)
template <class T>
struct Filter {
  T b1, one_minus_b1;
  const StepValues* values;
  const T* gradient;
  T* m;
  T* filtered;
  T correction = 0;

  CANZONA_KERNEL void load() { correction = values->corrections.first; }
  CANZONA_OPERANDS(gradient, m, Out{filtered})
  CANZONA_KERNEL void operator()(T g, T& own_m, T& own_filtered) const {
    own_m = b1 * own_m + one_minus_b1 * g;
    own_filtered = own_m / correction;
  }
};

/// v ← β₂v + (1 − β₂)G²; D = M̂/(√(v/(1 − β₂ᵗ)) + ε)
template <class T>
struct GraftAdam {
  T b2, one_minus_b2, eps;
  const StepValues* values;
  const T* gradient;
  const T* filtered;
  T* v;
  T* grafted;
  T correction = 0;

  CANZONA_KERNEL void load() { correction = values->corrections.second; }
  CANZONA_OPERANDS(gradient, filtered, v, Out{grafted})
  CANZONA_KERNEL void operator()(T g, T own_filtered, T& own_v, T& own_grafted) const {
    own_v = b2 * own_v + one_minus_b2 * (g * g);
    own_grafted = own_filtered / (std::sqrt(own_v / correction) + eps);
  }
};

/// ‖D‖/(‖P‖ + ε); 1 where that is a division by zero.
template <class T>
struct LendNorm {
  const double* squares;
  double eps;
  T* scale;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    const double norm = std::sqrt(squares[0]) + eps;
    *scale = norm > 0 ? static_cast<T>(std::sqrt(squares[1]) / norm) : 1;
  }
};

/// One preconditioned side of a tile.
template <class T>
struct Side {
  bool left;
  MatrixView<T> factor;
  MatrixView<T> root;
};

/// A part of one matrix of the stack, with state of its own.
template <class T>
struct Tile {
  std::int64_t place;  ///< of its first element in the stack
  Shape shape;
  DevicePointer<T> m;  ///< where β₁ > 0
  DevicePointer<T> v;  ///< where Adam is grafted
  std::vector<Side<T>> sides;
};

/// The longest side that is preconditioned, of tiles whose largest is `tile`: a side's last tile may be shorter.
std::int64_t longest_side(Shape shape, Shape tile, std::int64_t limit) {
  std::int64_t longest = 0;
  for (const std::int64_t side : {tile.rows, shape.rows % tile.rows, tile.cols, shape.cols % tile.cols})
    longest = std::max(longest, side <= limit ? side : 0);
  return longest;
}

/// In T: float or double.
template <class T>
class Shampoo final : public MatrixOptimizer {
 public:
  explicit Shampoo(const Preparation& own)
      : device_(own.device),
        workspace_(own.workspace),
        cols_(own.shape.cols),
        beta1_(own.options.number("beta1")),
        beta2_(own.options.number("beta2")),
        bias_correction_(own.options.is("use_bias_correction", "on")),
        grafting_(reference::shampoo_grafting(own.options)),
        grafting_beta2_(own.options.number("grafting_beta2")),
        grafting_epsilon_(own.options.number("grafting_epsilon")),
        grafting_denominator_epsilon_(own.options.number("grafting_denominator_epsilon")),
        period_(own.options.integer("precondition_frequency")),
        start_(own.options.integer("start_preconditioning_step")),
        max_precond_dim_(own.options.integer("max_precond_dim")),
        turns_(own.turns),
        largest_(largest_tile(own)),
        inverse_root_(device_, workspace_, kRoots, longest_side(own.shape, largest_, max_precond_dim_),
                      1 / own.options.number("inverse_exponent"), own.options.number("epsilon"),
                      reference::shampoo_root_method(own.options)),
        failed_(device_) {
    for (const Slot slot : {kG, kFiltered, kGrafted, kLeft, kRight})
      workspace_.reserve(slot, largest_.numel() * static_cast<std::int64_t>(sizeof(T)));
    workspace_.reserve(kSquares, 2 * sizeof(double));
    workspace_.reserve(kScale, sizeof(T));
    for (std::int64_t index = 0; index < own.count(); ++index) matrices_.push_back(tiles_of(own, index));
  }

  /// By how many matrices have roots: they have got them one after another.
  std::optional<std::int64_t> form(std::int64_t number) const override {
    if (number == 1) return std::nullopt;
    std::int64_t with_roots = 0;
    for (const std::int64_t turn : turns_) {
      if (is_refresh(number, turn)) return std::nullopt;
      with_roots += number >= first_refresh(turn) ? 1 : 0;
    }
    return with_roots;
  }

  void step(Stream& stream, std::int64_t number, DevicePointer<const StepValues> values,
            DevicePointer<const float> gradient, DevicePointer<float> update) override {
    if (number == 1) set_identities(stream);
    bool refreshed = false;
    for (std::size_t index = 0; index < matrices_.size(); ++index) {
      const bool refreshes = is_refresh(number, turns_[index]);
      const bool has_roots = number >= first_refresh(turns_[index]);
      for (const Tile<T>& tile : matrices_[index]) {
        const Out G{workspace_.slot<T>(kG), tile.shape.rows, tile.shape.cols};
        launch(stream, G.size(), TakeTile<T>{values.raw(), (gradient + tile.place).raw(), cols_, G.cols, G.data.raw()});
        accumulate(stream, tile, in(G));
        if (refreshes) refresh(stream, number, tile);
        const In filtered = filter(stream, values, tile, in(G));
        const In grafted = graft(stream, values, tile, in(G), filtered);
        const In direction = has_roots                     ? precondition(stream, tile, filtered, grafted)
                             : grafting_ == Grafting::none ? unscaled(stream, filtered)
                                                           : unscaled(stream, grafted);
        launch(stream, G.size(),
               PutTile<T>{workspace_.slot<T>(kScale).raw(), direction.data.raw(), cols_, G.cols,
                          (update + tile.place).raw()});
      }
      if (refreshes) failed_.end_matrix(stream);
      refreshed = refreshed || refreshes;
    }
    if (refreshed) failed_.end_refresh(stream);
  }

  std::int64_t failed_refreshes() const override { return failed_.known(); }

 private:
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;

  MatrixProducts<T>& products() { return device_.linear_algebra().template in<T>(); }

  static Shape largest_tile(const Preparation& own) {
    const std::int64_t block_size = own.options.integer("block_size");
    if (block_size == 0) return own.shape;
    return {std::min(own.shape.rows, block_size), std::min(own.shape.cols, block_size)};
  }

  DevicePointer<T> take(std::int64_t count) {
    memory_.push_back(device_.allocate_elements<T>(count));
    return memory_.back().as<T>();
  }

  /// The matrix cut at multiples of block_size; whole where that is 0.
  std::vector<Tile<T>> tiles_of(const Preparation& own, std::int64_t index) {
    std::vector<Tile<T>> tiles;
    for (std::int64_t row = 0; row < own.shape.rows; row += largest_.rows) {
      for (std::int64_t col = 0; col < own.shape.cols; col += largest_.cols) {
        Tile<T> tile{index * own.shape.numel() + row * own.shape.cols + col,
                     {std::min(largest_.rows, own.shape.rows - row), std::min(largest_.cols, own.shape.cols - col)},
                     {},
                     {},
                     {}};
        if (beta1_ > 0) tile.m = take(tile.shape.numel());
        if (grafting_ == Grafting::adam) tile.v = take(tile.shape.numel());
        for (const bool left : {true, false}) {
          const std::int64_t n = left ? tile.shape.rows : tile.shape.cols;
          if (n <= max_precond_dim_) tile.sides.push_back({left, {take(n * n), n, n}, {take(n * n), n, n}});
        }
        tiles.push_back(std::move(tile));
      }
    }
    return tiles;
  }

  /// The step from which roots exist.
  std::int64_t first_refresh(std::int64_t turn) const { return start_ > 0 ? start_ : period_ - turn % period_; }

  bool is_refresh(std::int64_t number, std::int64_t turn) const {
    const std::int64_t first = first_refresh(turn);
    return number == first || (number > first && (number + turn) % period_ == 0);
  }

  void set_identities(Stream& stream) {
    for (const std::vector<Tile<T>>& tiles : matrices_) {
      for (const Tile<T>& tile : tiles) {
        for (const Side<T>& side : tile.sides)
          launch(stream, side.root.size(), SetIdentity<T>{side.root.cols, side.root.data.raw()});
      }
    }
  }

  /// A ← β₂·A + (1 − β₂)·(left: G·Gᵀ, right: Gᵀ·G); a plain sum where β₂ is 1
  void accumulate(Stream& stream, const Tile<T>& tile, In G) {
    const auto weight = static_cast<T>(beta2_ < 1 ? 1 - beta2_ : 1);
    for (const Side<T>& side : tile.sides) {
      products().symmetric_product(stream, weight, G, side.left ? Transpose::no : Transpose::yes,
                                   static_cast<T>(beta2_), side.factor);
    }
  }

  void refresh(Stream& stream, std::int64_t number, const Tile<T>& tile) {
    const double correction = bias_correction_ && beta2_ < 1 ? 1 - std::pow(beta2_, static_cast<double>(number)) : 1;
    for (const Side<T>& side : tile.sides)
      inverse_root_.compute(stream, in(side.factor), static_cast<T>(correction), side.root, failed_.flag());
  }

  /// The bias-corrected first moment, or the gradient itself where β₁ is 0.
  In filter(Stream& stream, DevicePointer<const StepValues> values, const Tile<T>& tile, In G) {
    if (beta1_ == 0) return G;
    const Out filtered{workspace_.slot<T>(kFiltered), G.rows, G.cols};
    launch(stream, G.size(),
           Filter<T>{static_cast<T>(beta1_), static_cast<T>(1 - beta1_), values.raw(), G.data.raw(), tile.m.raw(),
                     filtered.data.raw()});
    return in(filtered);
  }

  /// The direction whose norm is lent: adam: M̂/(√V̂ + ε), V of the raw gradient and always bias-corrected; sgd: M̂.
  In graft(Stream& stream, DevicePointer<const StepValues> values, const Tile<T>& tile, In G, In filtered) {
    if (grafting_ != Grafting::adam) return filtered;
    const Out grafted{workspace_.slot<T>(kGrafted), G.rows, G.cols};
    launch(stream, G.size(),
           GraftAdam<T>{static_cast<T>(grafting_beta2_), static_cast<T>(1 - grafting_beta2_),
                        static_cast<T>(grafting_epsilon_), values.raw(), G.data.raw(), filtered.data.raw(),
                        tile.v.raw(), grafted.data.raw()});
    return in(grafted);
  }

  In unscaled(Stream& stream, In direction) {
    launch(stream, 1, Fill<T>{1, workspace_.slot<T>(kScale).raw()});
    return direction;
  }

  /// P = L^(−e)·M̂·R^(−e); what it is to be scaled by with grafting, ‖D‖/(‖P‖ + ε), stands in kScale.
  In precondition(Stream& stream, const Tile<T>& tile, In filtered, In grafted) {
    MatrixProducts<T>& algebra = products();
    In P = filtered;
    for (const Side<T>& side : tile.sides) {
      const Out next{workspace_.slot<T>(side.left ? kLeft : kRight), P.rows, P.cols};
      if (side.left) {
        algebra.product(stream, 1, in(side.root), Transpose::no, P, Transpose::no, 0, next);
      } else {
        algebra.product(stream, 1, P, Transpose::no, in(side.root), Transpose::no, 0, next);
      }
      P = in(next);
    }
    if (grafting_ == Grafting::none) return unscaled(stream, P);
    const DevicePointer<double> squares = workspace_.slot<double>(kSquares);
    launch_sums(stream, 1, P.size(), squares, Square<T>{P.data.raw()});
    launch_sums(stream, 1, P.size(), squares + 1, Square<T>{grafted.data.raw()});
    launch(stream, 1, LendNorm<T>{squares.raw(), grafting_denominator_epsilon_, workspace_.slot<T>(kScale).raw()});
    return P;
  }

  Device& device_;
  Workspace& workspace_;
  std::int64_t cols_;
  double beta1_;
  double beta2_;
  bool bias_correction_;
  Grafting grafting_;
  double grafting_beta2_;
  double grafting_epsilon_;
  double grafting_denominator_epsilon_;
  std::int64_t period_;
  std::int64_t start_;
  std::int64_t max_precond_dim_;
  std::vector<std::int64_t> turns_;
  Shape largest_;
  InverseRoot<T> inverse_root_;
  FailedRefreshes failed_;
  std::vector<Buffer> memory_;
  std::vector<std::vector<Tile<T>>> matrices_;
};

/// Of the filtered gradient, where that is asked for, and of the second moment that is grafted.
Corrections corrections(const Options& options, std::int64_t number) {
  const auto t = static_cast<double>(number);
  const bool corrects = options.is("use_bias_correction", "on");
  return {static_cast<float>(corrects ? 1 - std::pow(options.number("beta1"), t) : 1),
          static_cast<float>(1 - std::pow(options.number("grafting_beta2"), t))};
}

const EngineOptimizerRegistration registration{EngineOptimizer{
    .name = "shampoo",
    .order = 1,
    .make = make_wide<Shampoo>,
    .corrections = corrections,
    .has_fp64 = true,
}};

}  // namespace
}  // namespace canzona::optimized
