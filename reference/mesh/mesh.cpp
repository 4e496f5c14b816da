#include "reference/mesh/mesh.hpp"

#include <fmt/format.h>

#include "reference/core/error.hpp"

namespace canzona {

std::vector<int> Mesh::dp_group(int member) const {
  Coordinate at = coordinate(member);
  std::vector<int> group;
  for (at.dp = 0; at.dp < dp; ++at.dp) group.push_back(rank(at));
  return group;
}

std::vector<int> Mesh::tp_group(int member) const {
  Coordinate at = coordinate(member);
  std::vector<int> group;
  for (at.tp = 0; at.tp < tp; ++at.tp) group.push_back(rank(at));
  return group;
}

Mesh make_mesh(std::int64_t dp, std::int64_t tp, std::int64_t pp) {
  const auto check = [](const char* name, std::int64_t size) {
    if (size < 1 || size > kMostRanks) {
      throw InputError("mesh", name, std::to_string(size), fmt::format("an integer from 1 to {}", kMostRanks));
    }
  };
  check("dp", dp);
  check("tp", tp);
  check("pp", pp);
  if (dp * tp > kMostRanks || dp * tp * pp > kMostRanks) {
    throw InputError("mesh", "dp × tp × pp", fmt::format("{} × {} × {}", dp, tp, pp),
                     fmt::format("at most {} ranks", kMostRanks));
  }
  return {static_cast<int>(dp), static_cast<int>(tp), static_cast<int>(pp)};
}

}  // namespace canzona
