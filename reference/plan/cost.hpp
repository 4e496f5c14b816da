// What updating a matrix costs: the numbers that planners balance and reports add up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/core/dtype.hpp"
#include "reference/model/model.hpp"

namespace canzona {

/// `times` products of m × k by k × n, with operands of `type`.
struct MatrixProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t times = 1;
  DType type = DType::bf16;
  bool is_symmetric = false;  ///< A·Aᵀ: half of it need not be computed

  /// 2·m·n·k each, symmetric or not.
  std::int64_t flops() const;
};

/// `times` factorizations of an n × n matrix in fp32.
struct Factorization {
  enum class Kind { eigh, qr };

  Kind kind = Kind::eigh;
  std::int64_t n = 0;
  std::int64_t times = 1;

  /// Nominal: 9n³ for the eigenvectors of a symmetric matrix, 8n³/3 for QR with Q formed.
  std::int64_t flops() const;
};

std::string_view name_of(Factorization::Kind kind);

/// One optimizer step of one matrix. 1 multiply-add = 2 FLOPs.
struct MatrixCost {
  std::int64_t flops = 0;
  std::int64_t bytes_moved = 0;                    ///< by elementwise work, in memory traffic
  std::int64_t state_bytes = 0;                    ///< optimizer state, without the master weight
  std::vector<MatrixProduct> products = {};        ///< where the FLOPs go, with the factorizations;
  std::vector<Factorization> factorizations = {};  ///< their sum, for an optimizer that is nothing else

  bool nominal = false;  ///< stands on an assumed number of iterations

  MatrixCost& operator+=(const MatrixCost& other);
};

std::int64_t flops_of(const std::vector<MatrixProduct>& products,
                      const std::vector<Factorization>& factorizations = {});

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
  /// What a refresh adds to a step, and every how many steps it is due.
  struct Refresh {
    OfMatrix of_matrix;
    std::int64_t period = 1;
  };

  /// `of_elements` is the elementwise optimizer's, called with 1 × n.
  explicit Cost(OfMatrix of_matrix, OfMatrix of_elements, Measured measured = {}, std::optional<Refresh> refresh = {})
      : of_matrix_(std::move(of_matrix)),
        of_elements_(std::move(of_elements)),
        measured_(std::move(measured)),
        refresh_(std::move(refresh)) {}

  /// Cost of updating the whole parameter once, without a refresh; zero for elementwise ones.
  MatrixCost of(const Parameter& parameter) const;

  /// What refreshing one block of a parameter adds; zero where the optimizer has nothing to refresh.
  MatrixCost refresh_of(const Parameter& parameter, const Block& block) const;
  MatrixCost refresh_of(const Parameter& parameter) const;
  /// Every how many steps a block is refreshed; 1 where there is nothing to refresh.
  std::int64_t refresh_period() const { return refresh_ ? refresh_->period : 1; }

  /// FLOPs of a step, a refresh counted by the steps that share it.
  double average_flops(const Parameter& parameter) const;
  /// The same of the parameter as one matrix, whatever its blocks.
  double average_flops_unsplit(const Parameter& parameter) const;

  /// Cost of updating `count` elements of elementwise parameters once.
  MatrixCost of_elements(std::int64_t count) const { return of_elements_({1, count}); }

  /// W of a parameter: elements of the whole matrix, average FLOPs, or measured seconds; zero for elementwise ones.
  /// Throws InputError when `measured` is asked for and a block's shape was not measured.
  double weight(const Parameter& parameter, Weight weight) const;

  /// The weights of all parameters of `model`; a complaint about measured shapes names every one that is missing.
  std::vector<double> weights(const Model& model, Weight weight) const;

 private:
  OfMatrix of_matrix_;
  OfMatrix of_elements_;
  Measured measured_;
  std::optional<Refresh> refresh_;
};

}  // namespace canzona
