#include "harness/check/check.hpp"

#include <algorithm>
#include <cmath>

#include "reference/model/shard.hpp"

namespace canzona::harness {
namespace {

const Held& held_by(const Workload& workload, const std::vector<Held>& held, int dp_rank, int tp_rank) {
  return held[static_cast<std::size_t>(workload.mesh.rank({dp_rank, tp_rank, 0}))];
}

/// Where a DP rank's replica is that of an earlier one, bit by bit, the first such; itself where it is not.
int first_replica(const Workload& workload, const std::vector<Held>& held, int dp_rank) {
  if (!workload.plan.replicated()) return 0;  // all ranks' masters together are one
  for (int other = 0; other < dp_rank; ++other) {
    bool is_equal = true;
    for (int tp_rank = 0; tp_rank < workload.mesh.tp; ++tp_rank)
      is_equal = is_equal &&
                 held_by(workload, held, other, tp_rank).masters == held_by(workload, held, dp_rank, tp_rank).masters;
    if (is_equal) return other;
  }
  return dp_rank;
}

/// The masters of a shard, from those who own them.
std::vector<float> masters_of(const Workload& workload, const std::vector<Held>& held, int parameter, int dp_rank,
                              int tp_rank) {
  if (workload.plan.replicated()) return *held_by(workload, held, dp_rank, tp_rank).masters;
  std::vector<float> masters(static_cast<std::size_t>(workload.buffer.slot_of(parameter).elements.size()));
  for (int owner = 0; owner < workload.mesh.dp; ++owner) {
    auto next = held_by(workload, held, owner, tp_rank).masters->begin();
    for (const Range& range : owned_of_shard(workload, parameter, owner)) {
      std::copy_n(next, range.size(), masters.begin() + range.begin);
      next += range.size();
    }
  }
  return masters;
}

/// What the shards of one replica make of a parameter.
struct Replica {
  double error = 0;                    ///< of all its masters
  std::vector<std::uint64_t> weights;  ///< by TP rank: digest of its masters, rounded
};

Replica assemble(const Workload& workload, DType weights, int index, const Target& target,
                 const std::vector<Held>& held, int dp_rank) {
  const Parameter& parameter = workload.model.parameters[index];
  Replica replica;
  Matrix<float> whole(target.master.rows(), target.master.cols());
  for (int tp_rank = 0; tp_rank < workload.mesh.tp; ++tp_rank) {
    std::vector<float> own = masters_of(workload, held, index, dp_rank, tp_rank);
    place_shard(own.data(), parameter, workload.mesh.tp, tp_rank, whole);
    for (float& master : own) master = round_to(weights, master);
    replica.weights.push_back(digest_of(own));
    const bool is_whole = parameter.sharding == Sharding::none || tp_rank == workload.mesh.tp - 1;
    const Matrix<float> difference = is_whole ? Matrix<float>(whole - target.master) : Matrix<float>();
    if (difference.isZero(0)) continue;
    const double error = target.relative(target.determined.norm(parameter, difference));
    if (std::isnan(error) || error > replica.error) replica.error = error;
  }
  return replica;
}

}  // namespace

Check check(const Workload& workload, Targets& targets, const Ended& ended, optimized::Rank& rank) {
  Check check;
  check.left_out = ended.sample.left;
  for (const auto& [parameter, by] : ended.sample.chosen) {
    const auto add_target = [&, parameter = parameter](const Target& target) {
      add(check, workload, targets.precision().wire.parameter, parameter, target, ended.held.at(parameter));
    };
    if (ended.sample.is_whole) {
      add_target(targets.of(workload)[static_cast<std::size_t>(parameter)]);
    } else if (by == By::reference) {
      add_target(targets.of(workload, parameter, ended.agreements));
    } else if (const std::string why =
                   no_room(workload, targets, parameter, rank.device, rank.free_bytes - rank.device.taken().total());
               !why.empty()) {
      check.left_out[workload.model.parameters[static_cast<std::size_t>(parameter)].name] = why;
    } else {
      ++check.on_device;
      add_target(targets.on_device(workload, parameter, ended.agreements, rank.device));
    }
  }
  check.passed = check.passed && check.parameters > 0;
  return check;
}

void add(Check& check, const Workload& workload, DType weights, int parameter, const Target& target,
         const std::vector<Held>& held) {
  ++check.parameters;
  check.compared = std::min(check.compared, target.determined.share());
  const auto ratio = [](double error, double bound) { return error == 0 ? 0 : error / bound; };
  std::map<int, Replica> replicas;  // by the first DP rank that has it
  for (int dp_rank = 0; dp_rank < workload.mesh.dp; ++dp_rank) {
    const int first = first_replica(workload, held, dp_rank);
    if (!replicas.contains(first)) replicas[first] = assemble(workload, weights, parameter, target, held, first);
    const Replica& replica = replicas[first];
    bool is_rounded = true;
    for (int tp_rank = 0; tp_rank < workload.mesh.tp; ++tp_rank)
      is_rounded = is_rounded && held_by(workload, held, dp_rank, tp_rank).weights ==
                                     replica.weights[static_cast<std::size_t>(tp_rank)];
    const double error = is_rounded ? replica.error : HUGE_VAL;
    check.passed = check.passed && error <= target.bound && target.determined.share() > 0;
    // NaN is the worst.
    if (!check.parameter.empty() &&
        (std::isnan(check.worst_error) || ratio(error, target.bound) <= ratio(check.worst_error, check.bound)))
      continue;
    check.worst_error = error;
    check.bound = target.bound;
    check.is_measured = target.is_measured;
    check.parameter = workload.model.parameters[static_cast<std::size_t>(parameter)].name;
    check.dp_rank = dp_rank;
  }
}

}  // namespace canzona::harness
