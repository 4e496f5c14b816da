// What updating a matrix costs: the numbers that planners balance and reports add up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/model/model.hpp"

namespace canzona {

/// `times` products of m × k by k × n.
struct MatrixProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t times = 1;

  /// 2·m·n·k each.
  std::int64_t flops() const;
};

/// One optimizer step of one matrix. 1 multiply-add = 2 FLOPs.
struct MatrixCost {
  std::int64_t flops = 0;
  std::int64_t bytes_moved = 0;              ///< by elementwise work, in memory traffic
  std::int64_t state_bytes = 0;              ///< optimizer state, without the master weight
  std::vector<MatrixProduct> products = {};  ///< where the FLOPs go; their sum, for an optimizer that is all products
};

/// What a planner's weight W of a matrix stands for.
enum class Weight { numel, flops, measured };

/// Throws InputError unless `name` is numel, flops or measured.
Weight parse_weight(const std::string& name);

/// The cost of an optimizer on the parameters of a model; a parameter costs the sum of its blocks.
class Cost {
 public:
  using OfMatrix = std::function<MatrixCost(Shape)>;
  /// Measured seconds by (rows, cols).
  using Measured = std::map<std::pair<std::int64_t, std::int64_t>, double>;

  /// `of_elements` is the elementwise optimizer's, called with 1 × n.
  explicit Cost(OfMatrix of_matrix, OfMatrix of_elements, Measured measured = {})
      : of_matrix_(std::move(of_matrix)), of_elements_(std::move(of_elements)), measured_(std::move(measured)) {}

  /// Cost of updating the whole parameter once; zero for elementwise ones.
  MatrixCost of(const Parameter& parameter) const;

  /// Cost of updating `count` elements of elementwise parameters once.
  MatrixCost of_elements(std::int64_t count) const { return of_elements_({1, count}); }

  /// W of a parameter: elements of the whole matrix, FLOPs, or measured seconds; zero for elementwise ones.
  /// Throws InputError when `measured` is asked for and a block's shape was not measured.
  double weight(const Parameter& parameter, Weight weight) const;

  /// The weights of all parameters of `model`; a complaint about measured shapes names every one that is missing.
  std::vector<double> weights(const Model& model, Weight weight) const;

 private:
  OfMatrix of_matrix_;
  OfMatrix of_elements_;
  Measured measured_;
};

}  // namespace canzona
