#include "reference/strategies/workload.hpp"

#include <algorithm>

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

std::vector<std::vector<std::int64_t>> no_turns(const Model& model) {
  std::vector<std::vector<std::int64_t>> turns;
  for (const Parameter& parameter : model.parameters) turns.emplace_back(parameter.blocks.size(), 0);
  return turns;
}

/// The blocks that one rank refreshes, or ranks that refresh the same redundantly.
struct Refreshed {
  int parameter;
  std::size_t block;
  std::int64_t flops;
};

std::vector<std::vector<Refreshed>> refreshed_together(const Plan& plan, const Model& model, const Cost& cost) {
  std::vector<std::vector<Refreshed>> lists;
  for (int dp_rank = 0; dp_rank < (plan.replicated() ? 1 : plan.mesh.dp); ++dp_rank) {
    const bool redundant = plan.matrix_update == MatrixUpdate::redundant;
    const std::size_t first = lists.size();
    lists.resize(first + static_cast<std::size_t>(redundant ? 1 : plan.mesh.tp));
    for (const MicroGroup& group : plan.groups_of(dp_rank)) {
      for (const HostedMatrix& member : group.members) {
        const Parameter& parameter = model.parameters[member.parameter];
        auto& list = lists[first + static_cast<std::size_t>(redundant ? 0 : member.host)];
        for (std::size_t block = 0; block < parameter.blocks.size(); ++block)
          list.push_back({member.parameter, block, cost.refresh_of(parameter, parameter.blocks[block]).flops});
      }
    }
  }
  return lists;
}

/// Turns by parameter and block: on each rank the costliest block first, each to the turn that carries least so far. So
/// the steps of a period share a rank's refreshes, and ranks do their large ones in the same step.
std::vector<std::vector<std::int64_t>> staggered_turns(const Plan& plan, const Model& model, const Cost& cost) {
  std::vector<std::vector<std::int64_t>> turns = no_turns(model);
  for (std::vector<Refreshed>& list : refreshed_together(plan, model, cost)) {
    if (list.empty()) continue;
    std::stable_sort(list.begin(), list.end(),
                     [](const Refreshed& a, const Refreshed& b) { return a.flops > b.flops; });
    // No more turns than blocks are ever used.
    std::vector<std::int64_t> loads(std::min(static_cast<std::size_t>(cost.refresh_period()), list.size()), 0);
    for (const Refreshed& own : list) {
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += own.flops;
      turns[own.parameter][own.block] = least - loads.begin();
    }
  }
  return turns;
}

}  // namespace

Workload make_workload(const WorkloadRequest& request) {
  const Training& training = request.training;
  if (training.batch % training.micro_batches != 0) {
    throw InputError("", "the number of micro-batches", std::to_string(training.micro_batches),
                     "a divisor of the " + std::to_string(training.batch) + " samples");
  }
  const Strategy& strategy = Strategies::instance().find(request.strategy);
  const auto& optimizer = reference::Optimizers::instance().find(request.optimizer);
  const Options optimizer_options(optimizer.options, request.optimizer_options, optimizer.name);
  const Options strategy_options(strategy.options, options_of(strategy, request.strategy_options), strategy.name);

  Model model = build_model(request.config, request.mesh.tp, request.split);
  if (!optimizer.needs_whole_matrix) model = with_elementwise_routing(std::move(model));
  const std::int64_t bucket_size = request.bucket_size.value_or(strategy.bucket_size(model, request.mesh));
  GradientBuffer buffer = make_gradient_buffer(model, request.mesh.tp, bucket_size);
  const auto& elements = optimizer.needs_whole_matrix ? reference::Optimizers::instance().find("adamw") : optimizer;
  const Options element_options =
      optimizer.needs_whole_matrix
          ? Options(elements.options, {{"warmup_steps", optimizer_options.values().at("warmup_steps")}}, elements.name)
          : optimizer_options;
  std::optional<Cost::Refresh> refresh;
  if (optimizer.refresh_cost) {
    refresh = {
        [&optimizer, optimizer_options](Shape shape) { return optimizer.refresh_cost(shape, optimizer_options); },
        optimizer.refresh_period(optimizer_options)};
  }
  const bool staggered = refresh && optimizer_options.is("refresh", "staggered");
  Cost cost([&optimizer, optimizer_options](Shape shape) { return optimizer.cost(shape, optimizer_options); },
            [&elements, element_options](Shape shape) { return elements.cost(shape, element_options); },
            request.measured, std::move(refresh));

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
  auto turns = staggered ? staggered_turns(plan, model, cost) : no_turns(model);
  return {std::move(model),  request.mesh, std::move(buffer), std::move(cost),  std::move(plan), &optimizer,
          optimizer_options, &elements,    element_options,   request.training, std::move(turns)};
}

}  // namespace canzona
