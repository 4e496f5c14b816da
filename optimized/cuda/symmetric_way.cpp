#include "optimized/cuda/symmetric_way.hpp"

#include <algorithm>

#include "reference/core/error.hpp"

namespace canzona::optimized {

const std::vector<std::string>& symmetric_ways() {
  static const std::vector<std::string> names{"table", "cublas", "tiles"};  // in the order of SymmetricWay
  return names;
}

SymmetricWay parse_symmetric_way(const std::string& name) {
  const auto& names = symmetric_ways();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw Error("no such way of symmetric products: " + name);
  return static_cast<SymmetricWay>(found - names.begin());
}

bool SymmetricChoice::takes_tiles(std::int64_t n, std::int64_t tiles) const {
  if (way != SymmetricWay::table) return way == SymmetricWay::tiles;
  return std::any_of(kFasterFrom.begin(), kFasterFrom.end(), [&](const FasterFrom& row) {
    return row.generation == generation && n >= row.n && tiles >= row.tiles;
  });
}

}  // namespace canzona::optimized
