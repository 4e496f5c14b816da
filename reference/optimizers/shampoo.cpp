// Shampoo: the filtered gradient between inverse roots of the averaged G·Gᵀ and Gᵀ·G. Everything is computed in the
// type of the master weights; only the update leaves in the type of the arithmetic.
#include "reference/optimizers/shampoo.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "reference/core/error.hpp"
#include "reference/optimizers/refresh.hpp"

namespace canzona::reference {

RootMethod shampoo_root_method(const Options& options) {
  RootMethod method{root_method(options.text("root_method")),
                    options.integer("max_iterations"),
                    {},
                    options.integer("order"),
                    options.number("rel_epsilon")};
  if (!options.is("tolerance", "method")) method.tolerance = options.number("tolerance");
  if (method.kind != RootMethod::Kind::eigen && !is_coupled_root(1 / options.number("inverse_exponent"))) {
    throw InputError("shampoo", "inverse_exponent", "'" + options.text("inverse_exponent") + "'",
                     "1/p with an integer p under " + options.text("root_method"));
  }
  return method;
}

Grafting shampoo_grafting(const Options& options) {
  return options.is("grafting", "adam")  ? Grafting::adam
         : options.is("grafting", "sgd") ? Grafting::sgd
                                         : Grafting::none;
}

namespace {

/// A block of the matrix with factors of its own.
struct Tile {
  Range rows;
  Range cols;
};

/// The matrix cut at multiples of block_size; whole where that is 0.
std::vector<Tile> tiles_of(Shape shape, std::int64_t block_size) {
  const auto cut = [block_size](std::int64_t size) {
    std::vector<Range> ranges;
    const std::int64_t step = block_size > 0 ? block_size : std::max<std::int64_t>(size, 1);
    for (std::int64_t begin = 0; begin < size; begin += step) ranges.push_back({begin, std::min(begin + step, size)});
    return ranges;
  };
  std::vector<Tile> tiles;
  for (const Range& rows : cut(shape.rows)) {
    for (const Range& cols : cut(shape.cols)) tiles.push_back({rows, cols});
  }
  return tiles;
}

template <class Scalar>
class Shampoo final : public Optimizer<Scalar> {
 public:
  Shampoo(const Options& options, DType arithmetic)
      : Optimizer<Scalar>(options),
        beta1_(options.number("beta1")),
        beta2_(options.number("beta2")),
        epsilon_(options.number("epsilon")),
        root_(1 / options.number("inverse_exponent")),
        method_(shampoo_root_method(options)),
        bias_correction_(options.is("use_bias_correction", "on")),
        grafting_(shampoo_grafting(options)),
        grafting_beta2_(options.number("grafting_beta2")),
        grafting_epsilon_(options.number("grafting_epsilon")),
        grafting_denominator_epsilon_(options.number("grafting_denominator_epsilon")),
        period_(refresh_period(options)),
        start_(options.integer("start_preconditioning_step")),
        max_precond_dim_(options.integer("max_precond_dim")),
        block_size_(options.integer("block_size")),
        arithmetic_(arithmetic) {}

  State<Scalar> init(Shape shape) const override {
    State<Scalar> state;
    const Matrix<Scalar> zero = Matrix<Scalar>::Zero(shape.rows, shape.cols);
    if (beta1_ > 0) state.tensors["exp_avg"] = zero;
    if (grafting_ == Grafting::adam) state.tensors["exp_avg_sq"] = zero;
    for (const Side& side : sides_of(shape)) {
      state.tensors[side.factor] = Matrix<Scalar>::Zero(side.size, side.size);
      state.tensors[side.root] = Matrix<Scalar>::Identity(side.size, side.size);
    }
    return state;
  }

  Matrix<Scalar> step(const Matrix<Scalar>& gradient, State<Scalar>& state) const override {
    ++state.steps;
    const std::vector<Side> sides = sides_of(shape_of(gradient));
    for (const Side& side : sides) {
      // A ← β₂·A + (1 − β₂)·GGᵀ; a plain sum where β₂ is 1
      accumulate_factor(state.tensors.at(side.factor), part(gradient, side.tile), side.left, beta2_,
                        beta2_ < 1 ? 1 - beta2_ : 1);
    }
    if (is_refresh(state)) refresh(sides, state);
    const Matrix<Scalar> filtered = filter(gradient, state);
    const Matrix<Scalar> grafted = graft(gradient, filtered, state);
    if (state.steps < first_refresh(state))
      return rounded(arithmetic_, grafting_ == Grafting::none ? filtered : grafted);
    return rounded(arithmetic_, precondition(filtered, grafted, sides, state));
  }

 private:
  /// One preconditioned side of a tile, and the names of its tensors.
  struct Side {
    Tile tile;
    bool left;
    std::int64_t size;
    std::string factor;
    std::string root;
  };

  static Matrix<Scalar> part(const Matrix<Scalar>& matrix, const Tile& tile) {
    return matrix.block(tile.rows.begin, tile.cols.begin, tile.rows.size(), tile.cols.size());
  }

  std::vector<Side> sides_of(Shape shape) const {
    std::vector<Side> sides;
    int index = 0;
    for (const Tile& tile : tiles_of(shape, block_size_)) {
      const std::string suffix = index == 0 ? "" : fmt::format("_{}", index);
      const auto add = [&](bool left, std::int64_t size, const char* name) {
        if (size <= max_precond_dim_) sides.push_back({tile, left, size, name + suffix, "root_" + (name + suffix)});
      };
      add(true, tile.rows.size(), "left");
      add(false, tile.cols.size(), "right");
      ++index;
    }
    return sides;
  }

  /// The step from which roots exist.
  std::int64_t first_refresh(const State<Scalar>& state) const {
    return start_ > 0 ? start_ : period_ - state.turn % period_;
  }

  bool is_refresh(const State<Scalar>& state) const {
    const std::int64_t first = first_refresh(state);
    return state.steps == first || (state.steps > first && (state.steps + state.turn) % period_ == 0);
  }

  void refresh(const std::vector<Side>& sides, State<Scalar>& state) const {
    const double correction =
        bias_correction_ && beta2_ < 1 ? 1 - std::pow(beta2_, static_cast<double>(state.steps)) : 1;
    bool failed = false;
    for (const Side& side : sides) {
      const Matrix<Scalar> corrected = state.tensors.at(side.factor) / static_cast<Scalar>(correction);
      if (auto root = inverse_root(corrected, root_, epsilon_, method_)) {
        state.tensors.at(side.root) = std::move(*root);
      } else {
        failed = true;
      }
    }
    state.failed_refreshes += failed ? 1 : 0;
  }

  /// The bias-corrected first moment, or the gradient itself where β₁ is 0.
  Matrix<Scalar> filter(const Matrix<Scalar>& gradient, State<Scalar>& state) const {
    if (beta1_ == 0) return gradient;
    Matrix<Scalar>& moment = state.tensors.at("exp_avg");
    moment = static_cast<Scalar>(beta1_) * moment + static_cast<Scalar>(1 - beta1_) * gradient;
    if (!bias_correction_) return moment;
    return moment / static_cast<Scalar>(1 - std::pow(beta1_, static_cast<double>(state.steps)));
  }

  /// The direction whose norm is lent: adam: M̂/(√V̂ + ε), V of the raw gradient and always bias-corrected; sgd: M̂.
  Matrix<Scalar> graft(const Matrix<Scalar>& gradient, const Matrix<Scalar>& filtered, State<Scalar>& state) const {
    if (grafting_ != Grafting::adam) return filtered;
    Matrix<Scalar>& second = state.tensors.at("exp_avg_sq");
    second = static_cast<Scalar>(grafting_beta2_) * second +
             static_cast<Scalar>(1 - grafting_beta2_) * gradient.cwiseProduct(gradient);
    const auto correction = static_cast<Scalar>(1 - std::pow(grafting_beta2_, static_cast<double>(state.steps)));
    return filtered.array() / ((second.array() / correction).sqrt() + static_cast<Scalar>(grafting_epsilon_));
  }

  /// P = L^(−e)·M̂·R^(−e), tile by tile; with grafting P·‖D‖/(‖P‖ + ε), D the grafted direction of the tile.
  Matrix<Scalar> precondition(const Matrix<Scalar>& filtered, const Matrix<Scalar>& grafted,
                              const std::vector<Side>& sides, const State<Scalar>& state) const {
    Matrix<Scalar> update(filtered.rows(), filtered.cols());
    auto side = sides.begin();
    for (const Tile& tile : tiles_of(shape_of(filtered), block_size_)) {
      Matrix<Scalar> direction = part(filtered, tile);
      for (; side != sides.end() && side->tile.rows == tile.rows && side->tile.cols == tile.cols; ++side) {
        const Matrix<Scalar>& root = state.tensors.at(side->root);
        direction = side->left ? Matrix<Scalar>(root * direction) : Matrix<Scalar>(direction * root);
      }
      if (grafting_ != Grafting::none) {
        const double norm = frobenius_norm(direction) + grafting_denominator_epsilon_;
        if (norm > 0) direction *= static_cast<Scalar>(frobenius_norm(part(grafted, tile)) / norm);
      }
      update.block(tile.rows.begin, tile.cols.begin, tile.rows.size(), tile.cols.size()) = direction;
    }
    return update;
  }

  double beta1_;
  double beta2_;
  double epsilon_;
  double root_;
  RootMethod method_;
  bool bias_correction_;
  Grafting grafting_;
  double grafting_beta2_;
  double grafting_epsilon_;
  double grafting_denominator_epsilon_;
  std::int64_t period_;
  std::int64_t start_;
  std::int64_t max_precond_dim_;
  std::int64_t block_size_;
  DType arithmetic_;
};

constexpr DType kType = DType::fp32;

/// The shapes of tiles and how many there are of each: at most four.
std::vector<std::pair<Shape, std::int64_t>> tile_shapes(Shape shape, std::int64_t block_size) {
  const auto cut = [block_size](std::int64_t size) {
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;  // and how many
    if (block_size == 0 || size <= block_size) return decltype(lengths){{size, 1}};
    lengths.emplace_back(block_size, size / block_size);
    if (size % block_size != 0) lengths.emplace_back(size % block_size, 1);
    return lengths;
  };
  std::vector<std::pair<Shape, std::int64_t>> shapes;
  for (const auto& [rows, down] : cut(shape.rows)) {
    for (const auto& [cols, across] : cut(shape.cols)) shapes.push_back({{rows, cols}, checked_multiply(down, across)});
  }
  return shapes;
}

/// Per tile and side of length d, the other being e: GGᵀ and the root's product, 2·d²e each.
MatrixCost cost(Shape shape, const Options& options) {
  const std::int64_t bytes = bytes_of(kType);
  MatrixCost cost;
  std::int64_t factors = 0;
  for (const auto& [tile, count] : tile_shapes(shape, options.integer("block_size"))) {
    for (const std::int64_t d : preconditioned_sides(tile, options.integer("max_precond_dim"))) {
      const std::int64_t e = tile.numel() / d;
      cost.products.push_back({d, d, e, count, kType, true});
      cost.products.push_back({d, e, d, count, kType});
      factors = checked_add(factors, checked_multiply(count, checked_multiply(d, d)));
    }
  }
  cost.flops = flops_of(cost.products);
  const std::int64_t moments =
      (options.number("beta1") > 0 ? 1 : 0) + (shampoo_grafting(options) == Grafting::adam ? 1 : 0);
  // G read; each moment read and written; direction and update written, read for their norms and written again.
  cost.bytes_moved = checked_multiply(shape.numel(), (1 + 2 * moments + 5) * bytes);
  cost.state_bytes =
      checked_add(checked_multiply(shape.numel(), moments * bytes), checked_multiply(factors, 2 * bytes));
  return cost;
}

/// Products of one coupled iteration: X·N, N^p by squaring, times M, and what the series takes.
std::int64_t products_an_iteration(const RootMethod& method, double root) {
  const auto p = static_cast<unsigned>(std::lround(root));
  const int power = std::bit_width(p) - 1 + std::popcount(p) - 1;
  return 2 + power + (method.kind == RootMethod::Kind::coupled_higher_order ? method.order - 2 : 0);
}

/// eigen: eigh and Q·diag·Qᵀ of each side. Coupled iterations: as many as runs are said to take.
MatrixCost refresh_cost(Shape shape, const Options& options) {
  constexpr std::int64_t kIterations = 20;  // published runs take 10 to 30: a nominal count
  const RootMethod method = shampoo_root_method(options);
  const bool eigen = method.kind == RootMethod::Kind::eigen;
  const std::int64_t products = eigen ? 1
                                      : std::min(kIterations, method.max_iterations) *
                                            products_an_iteration(method, 1 / options.number("inverse_exponent"));
  MatrixCost cost;
  cost.nominal = !eigen;
  for (const auto& [tile, count] : tile_shapes(shape, options.integer("block_size"))) {
    for (const std::int64_t d : preconditioned_sides(tile, options.integer("max_precond_dim"))) {
      if (eigen) cost.factorizations.push_back({Factorization::Kind::eigh, d, count});
      cost.products.push_back({d, d, d, checked_multiply(products, count), kType});
    }
  }
  cost.flops = flops_of(cost.products, cost.factorizations);
  return cost;
}

void check_tolerance(const std::string& text) {
  if (text != "method") parse_number("tolerance", text, 0, 1);
}

void check_exponent(const std::string& text) {
  const double exponent = parse_number("inverse_exponent", text, 0, 1);
  if (exponent == 0) throw InputError("", "inverse_exponent", "'" + text + "'", "a number above 0, up to 1");
}

const OptimizerRegistration registration{OptimizerDescription{
    .name = "shampoo",
    .order = 1,
    .description = "the filtered gradient between inverse roots of averaged G·Gᵀ and Gᵀ·G",
    .citation = "Gupta, Koren, Singer (arXiv 1802.09568); conventions of facebookresearch/optimizers@f606606, "
                "max_precond_dim of nikhilvyas/SOAP@a1e5535, lr and weight decay as adamw, whose norm is grafted",
    .options = learning_options(
        "0.001", "0.1", "decoupled_before",
        refresh_options(
            "10",
            {
                {"beta1", NumberOption{0, kBelowOne}, "0.9", "", "of the filtered gradient; 0: the gradient itself"},
                {"beta2", NumberOption{0, 1}, "0.999", "", "of the factors; 1: a plain sum"},
                {"epsilon", NumberOption{0, 1e6}, "1e-12", "", "added to the diagonal of a factor before its root"},
                {"epsilon_form", WordOption{{"absolute_after_bias_correction"}}, "absolute_after_bias_correction", "",
                 "root of A/(1 − β₂ᵗ) + εI"},
                {"root_method", WordOption{{"eigen", "coupled_newton", "coupled_higher_order"}}, "eigen", "",
                 "how A^(−1/p) is computed"},
                {"max_iterations", IntegerOption{1, 1'000'000}, "100", "", "of coupled iterations"},
                {"tolerance", TextOption{"method, or a number from 0 to 1", check_tolerance}, "method", "",
                 "at which coupled iterations stop; method: 1e-6, higher order 1e-8"},
                {"order", IntegerOption{2, 20}, "3", "", "of coupled_higher_order"},
                {"rel_epsilon", NumberOption{0, 1}, "0", "",
                 "coupled_higher_order adds at least this times the largest row sum"},
                {"inverse_exponent", TextOption{"a number above 0, up to 1", check_exponent}, "0.25", "",
                 "of each side; 1/p with an integer p for coupled iterations"},
                {"use_bias_correction", WordOption{{"on", "off"}}, "on", "", "of factors and first moment"},
                {"grafting", WordOption{{"none", "sgd", "adam"}}, "adam", "", "whose norm the update takes"},
                {"grafting_beta2", NumberOption{0, kBelowOne}, "0.999", "", "of Adam's second moment"},
                {"grafting_epsilon", NumberOption{0, 1e6}, "1e-8", "", "of Adam, outside the root"},
                {"grafting_denominator_epsilon", NumberOption{0, 1e6}, "1e-16", "", "added to the norm divided by"},
                {"start_preconditioning_step", IntegerOption{-1, 1'000'000'000}, "-1", "steps",
                 "first step with roots; -1 or 0: the first refresh"},
                max_precond_dim_option("10000"),
                {"block_size", IntegerOption{0, std::int64_t{1} << 40}, "0", "elements",
                 "tiles with factors of their own; 0: one"},
            })),
    .needs_whole_matrix = true,
    .cost = cost,
    .refresh_cost = refresh_cost,
    .refresh_period = refresh_period,
    .verification = {{"precondition_frequency", "2"}, {"max_precond_dim", "128"}},
    .make_double = make_optimizer<Shampoo, double>,
    .make_float = make_optimizer<Shampoo, float>,
}};

}  // namespace
}  // namespace canzona::reference
