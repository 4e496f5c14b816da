#include "reference/plan/cost.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

InputError unmeasured(const std::vector<Shape>& shapes) {
  std::string text;
  for (const Shape& shape : shapes) text += fmt::format("{}{}×{}", text.empty() ? "" : ", ", shape.rows, shape.cols);
  return {"", "cost", "'measured' without seconds for " + text, "a cost file with a [[matrix]] for each"};
}

}  // namespace

std::int64_t MatrixProduct::flops() const {
  return checked_multiply(checked_multiply(2, times), checked_multiply(m, checked_multiply(n, k)));
}

std::int64_t Factorization::flops() const {
  const std::int64_t cube = checked_multiply(n, checked_multiply(n, n));
  return checked_multiply(times, kind == Kind::eigh ? checked_multiply(9, cube) : checked_multiply(8, cube) / 3);
}

std::string_view name_of(Factorization::Kind kind) { return kind == Factorization::Kind::eigh ? "eigh" : "qr"; }

MatrixCost& MatrixCost::operator+=(const MatrixCost& other) {
  flops = checked_add(flops, other.flops);
  bytes_moved = checked_add(bytes_moved, other.bytes_moved);
  state_bytes = checked_add(state_bytes, other.state_bytes);
  nominal = nominal || other.nominal;
  products.insert(products.end(), other.products.begin(), other.products.end());
  factorizations.insert(factorizations.end(), other.factorizations.begin(), other.factorizations.end());
  return *this;
}

std::int64_t flops_of(const std::vector<MatrixProduct>& products, const std::vector<Factorization>& factorizations) {
  std::int64_t flops = 0;
  for (const MatrixProduct& product : products) flops = checked_add(flops, product.flops());
  for (const Factorization& factorization : factorizations) flops = checked_add(flops, factorization.flops());
  return flops;
}

Weight parse_weight(const std::string& name) {
  if (name == "numel") return Weight::numel;
  if (name == "flops") return Weight::flops;
  if (name == "measured") return Weight::measured;
  throw InputError("", "cost", "'" + name + "'", "numel, flops, measured");
}

MatrixCost Cost::of(const Parameter& parameter) const {
  MatrixCost total;
  if (parameter.routing != Routing::matrix) return total;
  for (const Block& block : parameter.blocks) total += of_matrix_(parameter.block_shape(block));
  return total;
}

MatrixCost Cost::refresh_of(const Parameter& parameter, const Block& block) const {
  if (!refresh_ || parameter.routing != Routing::matrix) return {};
  return refresh_->of_matrix(parameter.block_shape(block));
}

MatrixCost Cost::refresh_of(const Parameter& parameter) const {
  MatrixCost total;
  for (const Block& block : parameter.blocks) total += refresh_of(parameter, block);
  return total;
}

double Cost::average_flops(const Parameter& parameter) const {
  return static_cast<double>(of(parameter).flops) +
         static_cast<double>(refresh_of(parameter).flops) / static_cast<double>(refresh_period());
}

double Cost::average_flops_unsplit(const Parameter& parameter) const {
  Parameter whole = parameter;
  whole.blocks = {{"whole", {{0, parameter.shape.rows}}}};
  return average_flops(whole);
}

double Cost::weight(const Parameter& parameter, Weight weight) const {
  if (parameter.routing != Routing::matrix) return 0;
  switch (weight) {
    case Weight::numel: return static_cast<double>(parameter.shape.numel());
    case Weight::flops: return average_flops(parameter);
    case Weight::measured: break;
  }
  double seconds = 0;
  for (const Block& block : parameter.blocks) {
    const Shape shape = parameter.block_shape(block);
    const auto found = measured_.find({shape.rows, shape.cols});
    if (found == measured_.end()) throw unmeasured({shape});
    seconds += found->second;
  }
  return seconds;
}

std::vector<double> Cost::weights(const Model& model, Weight weight) const {
  std::vector<Shape> missing;
  std::vector<double> weights;
  for (const Parameter& parameter : model.parameters) {
    for (const Block& block : parameter.blocks) {
      const Shape shape = parameter.block_shape(block);
      const bool is_needed = weight == Weight::measured && parameter.routing == Routing::matrix;
      const bool is_new = std::find(missing.begin(), missing.end(), shape) == missing.end();
      if (is_needed && is_new && !measured_.contains({shape.rows, shape.cols})) missing.push_back(shape);
    }
    if (missing.empty()) weights.push_back(this->weight(parameter, weight));
  }
  if (!missing.empty()) throw unmeasured(missing);
  return weights;
}

}  // namespace canzona
