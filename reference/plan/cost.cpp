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

Weight parse_weight(const std::string& name) {
  if (name == "numel") return Weight::numel;
  if (name == "flops") return Weight::flops;
  if (name == "measured") return Weight::measured;
  throw InputError("", "cost", "'" + name + "'", "numel, flops, measured");
}

MatrixCost Cost::of(const Parameter& parameter) const {
  MatrixCost total;
  if (parameter.routing != Routing::matrix) return total;
  for (const Block& block : parameter.blocks) {
    const MatrixCost cost = of_matrix_(parameter.block_shape(block));
    total.flops = checked_add(total.flops, cost.flops);
    total.bytes_moved = checked_add(total.bytes_moved, cost.bytes_moved);
    total.state_bytes = checked_add(total.state_bytes, cost.state_bytes);
    total.products.insert(total.products.end(), cost.products.begin(), cost.products.end());
  }
  return total;
}

double Cost::weight(const Parameter& parameter, Weight weight) const {
  if (parameter.routing != Routing::matrix) return 0;
  switch (weight) {
    case Weight::numel: return static_cast<double>(parameter.shape.numel());
    case Weight::flops: return static_cast<double>(of(parameter).flops);
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
