// From "this model on this mesh under this strategy" to a validated plan: the one way everything starts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "reference/optimizers/optimizer.hpp"
#include "reference/plan/cost.hpp"
#include "reference/plan/plan.hpp"
#include "reference/plan/training.hpp"

namespace canzona {

/// What a person asks for.
struct WorkloadRequest {
  ModelConfig config;
  Mesh mesh;
  std::string strategy;
  std::string optimizer;
  BlockSplit split;
  std::map<std::string, std::string>
      strategy_options;  ///< those that the strategy lacks are ignored (--alpha under static)
  std::map<std::string, std::string> optimizer_options;
  Training training;
  std::optional<std::int64_t> bucket_size;  ///< elements; the strategy's own default otherwise
  Cost::Measured measured;                  ///< seconds by shape, for --cost measured
};

/// Everything an executor needs to know of a point.
struct Workload {
  Model model;
  Mesh mesh;
  GradientBuffer buffer;
  Cost cost;
  Plan plan;
  const reference::OptimizerDescription* optimizer;
  Options optimizer_options;
  /// For parameters that are updated elementwise: the optimizer itself where it is elementwise, or else AdamW, which
  /// shares its warm-up alone.
  const reference::OptimizerDescription* element_optimizer;
  Options element_options;
  Training training;
  /// By parameter and block: State::turn. All zero where refreshes are made together; where they are staggered, the
  /// blocks that a rank updates take turns, so that they depend on the plan.
  std::vector<std::vector<std::int64_t>> turns;
};

/// Builds, plans and validates. Throws InputError on unknown names and values that are not allowed, PlanError naming
/// the strategy when its plan breaks a rule.
Workload make_workload(const WorkloadRequest& request);

}  // namespace canzona
