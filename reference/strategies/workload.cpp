#include "reference/strategies/workload.hpp"

#include "reference/strategies/strategy.hpp"

namespace canzona {
namespace {

/// The options given that `strategy` has.
std::map<std::string, std::string> options_of(const Strategy& strategy,
                                              const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> own;
  for (const OptionDescription& option : strategy.options) {
    if (const auto found = given.find(option.name); found != given.end()) own.insert(*found);
  }
  return own;
}

}  // namespace

Workload make_workload(const WorkloadRequest& request) {
  const Strategy& strategy = Strategies::instance().find(request.strategy);
  const auto& optimizer = reference::Optimizers::instance().find(request.optimizer);
  const Options optimizer_options(optimizer.options, request.optimizer_options, optimizer.name);
  const Options strategy_options(strategy.options, options_of(strategy, request.strategy_options), strategy.name);

  Model model = build_model(request.config, request.mesh.tp);
  if (!optimizer.needs_whole_matrix) model = with_elementwise_routing(std::move(model));
  const std::int64_t bucket_size = request.bucket_size.value_or(strategy.bucket_size(model, request.mesh));
  GradientBuffer buffer = make_gradient_buffer(model, request.mesh.tp, bucket_size);
  const auto& elements = optimizer.needs_whole_matrix ? reference::Optimizers::instance().find("adamw") : optimizer;
  const Options element_options =
      optimizer.needs_whole_matrix ? Options(elements.options, {}, elements.name) : optimizer_options;
  Cost cost([&optimizer, optimizer_options](Shape shape) { return optimizer.cost(shape, optimizer_options); },
            [&elements, element_options](Shape shape) { return elements.cost(shape, element_options); },
            request.measured);

  Plan plan;
  try {
    plan = strategy.plan(model, request.mesh, buffer, cost, strategy_options);
    plan.strategy = strategy.name;
    plan.options = strategy_options.values();
    validate(plan, model, buffer);
  } catch (const OverflowError& error) {
    throw InputError(request.config.origin, "the model's size", error.what(), "costs and offsets below 2⁶³");
  } catch (const PlanError& error) {
    throw PlanError("strategy '" + strategy.name + "' wrote an invalid plan: " + error.what());
  }
  return {std::move(model), request.mesh, std::move(buffer), std::move(cost),
          std::move(plan),  &optimizer,   optimizer_options};
}

}  // namespace canzona
