// Every rank updates everything: the plain data-parallel baseline.
#include "reference/strategies/partition.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona {
namespace {

Plan plan_synchronous(const Model& model, const Mesh& mesh, const GradientBuffer& buffer, const Cost&, const Options&) {
  Plan plan;
  plan.mesh = mesh;
  plan.gradient_reduction = GradientReduction::all_reduce;
  plan.parameter_gather = ParameterGather::none;
  plan.matrix_update = MatrixUpdate::redundant;
  plan.micro_groups = one_by_one(plan, model, buffer);
  return plan;
}

const StrategyRegistration registration{Strategy{
    .name = "synchronous",
    .order = 0,
    .description = "all-reduce gradients; every rank gathers every matrix and updates all of them redundantly",
    .citation = "synchronous compute, the baseline of Canzona (arXiv 2602.06079)",
    .options = {},
    .plan = plan_synchronous,
}};

}  // namespace
}  // namespace canzona
