// A strategy writes a plan. Each stands in a file of its own, describes itself and registers itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/core/options.hpp"
#include "reference/core/registry.hpp"
#include "reference/plan/cost.hpp"
#include "reference/plan/plan.hpp"

namespace canzona {

struct Strategy {
  static constexpr const char* noun = "strategy";

  std::string name;
  int order = 0;            ///< place in lists and tables: baselines first
  std::string description;  ///< one line
  std::string citation;
  std::vector<OptionDescription> options;
  /// Elements after which a bucket closes when nobody says otherwise.
  std::function<std::int64_t(const Model&, const Mesh&)> bucket_size = [](const Model&, const Mesh& mesh) {
    return default_bucket_size(mesh.dp);
  };
  /// Writes ownership, micro-groups and the kinds of collectives; make_workload fills in the rest.
  std::function<Plan(const Model&, const Mesh&, const GradientBuffer&, const Cost&, const Options&)> plan;
};

using Strategies = Registry<Strategy>;
using StrategyRegistration = Registration<Strategy>;

}  // namespace canzona
