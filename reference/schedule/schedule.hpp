// A schedule: a plan unrolled into one iteration of one rank, as steps on streams. The reference executor, the
// engine and the simulator all consume it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/plan/plan.hpp"

namespace canzona {

/// Forward and backward of a layer, sums of activations over the TP group included: 0 embedding, 1…L decoder layers,
/// L + 1 output. Backward adds to what earlier micro-batches left.
struct Forward {
  int layer = 0;
  int micro_batch = 0;
  friend bool operator==(const Forward&, const Forward&) = default;
};
struct Backward {
  int layer = 0;
  int micro_batch = 0;
  friend bool operator==(const Backward&, const Backward&) = default;
};
/// Collective over the DP group: average a bucket's gradients.
struct ReduceGradients {
  int bucket = 0;
  friend bool operator==(const ReduceGradients&, const ReduceGradients&) = default;
};
/// Collective: add up the squares of the averaged gradient, and count what is not finite, over the DP group and then
/// over the TP group, so that every rank knows the global norm and whether to skip the iteration's update.
struct AgreeOnGradients {
  bool over_tp = false;
  friend bool operator==(const AgreeOnGradients&, const AgreeOnGradients&) = default;
};
/// Collective over the TP group: bring a micro-group's gradient shards to those who compute.
struct GatherShards {
  int group = 0;  ///< index into this DP rank's micro-groups
  friend bool operator==(const GatherShards&, const GatherShards&) = default;
};
/// Compute the update of a whole matrix.
struct Update {
  int parameter = 0;
  friend bool operator==(const Update&, const Update&) = default;
};
/// The elementwise optimizer on the elements that this rank owns in a bucket, applied at once.
struct UpdateElements {
  int bucket = 0;
  friend bool operator==(const UpdateElements&, const UpdateElements&) = default;
};
/// Collective over the TP group: return a micro-group's updates to the shards.
struct ScatterUpdates {
  int group = 0;
  friend bool operator==(const ScatterUpdates&, const ScatterUpdates&) = default;
};
/// Apply a matrix's update to this rank's shard of the master weights, and refresh the model weights.
struct Apply {
  int parameter = 0;
  friend bool operator==(const Apply&, const Apply&) = default;
};
/// Collective over the DP group: bring a bucket's updated model weights from their owners.
struct GatherParameters {
  int bucket = 0;
  friend bool operator==(const GatherParameters&, const GatherParameters&) = default;
};

/// An executor visits all of them: a new kind must fail to compile where it is not handled.
using Action = std::variant<Forward, Backward, ReduceGradients, AgreeOnGradients, GatherShards, Update, UpdateElements,
                            ScatterUpdates, Apply, GatherParameters>;

/// Steps of one stream run one at a time, in the order in which they stand in the schedule.
enum class Stream { compute, dp, tp };
constexpr int kStreams = 3;

struct Step {
  Action action;
  Stream stream = Stream::compute;
  std::vector<int> waits_for;           ///< earlier steps of this iteration, besides those before it on its stream
  std::vector<int> waits_for_previous;  ///< steps of the iteration before
};

struct Schedule {
  int rank = 0;
  std::vector<Step> steps;
};

/// Unrolls `plan` for `rank`. Forward waits for the previous iteration's parameters; each bucket is reduced as soon as
/// the last micro-batch's backward has finished it; when the last is, all agree on norm and finiteness, and the
/// optimizer step begins; parameters are gathered as the plan says.
Schedule make_schedule(const Plan& plan, const Model& model, const GradientBuffer& buffer, int rank,
                       int micro_batches = 1);

/// Throws PlanError naming the step unless every dependency exists and stands earlier.
void validate(const Schedule& schedule);

std::string_view name_of(Stream stream);

/// "Update(12)".
std::string describe(const Action& action);
nlohmann::ordered_json to_json(const Schedule& schedule);

}  // namespace canzona
