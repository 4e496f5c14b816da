// Which machines and devices the ranks of a launch have.
#pragma once

#include <string>
#include <vector>

#include "optimized/engine/rank.hpp"

namespace canzona::harness {

struct Machines {
  std::vector<std::string> hosts;    ///< by rank: the name of its machine
  std::vector<std::string> devices;  ///< by rank: what its device is called; empty for a host

  /// In the order of their first ranks.
  std::vector<std::string> names() const;
  int ranks_on(const std::string& host) const;
};

/// All ranks call, and learn the same.
Machines machines_of(optimized::Rank& rank);

}  // namespace canzona::harness
