#include "reference/plan/cost.hpp"

#include <fmt/format.h>

#include "reference/core/error.hpp"

namespace canzona {

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
    if (found == measured_.end()) {
      throw InputError("", "cost", "'measured'",
                       fmt::format("a cost file with seconds for {}×{} ({})", shape.rows, shape.cols, parameter.name));
    }
    seconds += found->second;
  }
  return seconds;
}

}  // namespace canzona
