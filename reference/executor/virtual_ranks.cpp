#include "reference/executor/virtual_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"

namespace canzona::reference {
namespace {

std::int64_t total_size(const std::vector<Range>& ranges) {
  std::int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

std::int64_t largest_size(const std::vector<std::vector<Range>>& pieces) {
  std::int64_t largest = 0;
  for (const auto& ranges : pieces) largest = std::max(largest, total_size(ranges));
  return largest;
}

/// Copies the ranges of `flat` one after another to `packed`, or back.
template <class Scalar>
void pack(const std::vector<Scalar>& flat, const std::vector<Range>& ranges, Scalar* packed) {
  for (const Range& range : ranges) packed = std::copy(flat.begin() + range.begin, flat.begin() + range.end, packed);
}
template <class Scalar>
void unpack(const Scalar* packed, const std::vector<Range>& ranges, std::vector<Scalar>& flat) {
  for (const Range& range : ranges) {
    std::copy_n(packed, range.size(), flat.begin() + range.begin);
    packed += range.size();
  }
}

/// Takes the entry out of `map`; a step whose input is not there has been scheduled wrongly.
template <class Value>
Value take(std::map<int, Value>& map, int parameter, int rank, const char* what) {
  const auto found = map.find(parameter);
  if (found == map.end())
    throw PlanError(fmt::format("rank {}: {} of parameter {} is not there", rank, what, parameter));
  Value value = std::move(found->second);
  map.erase(found);
  return value;
}

}  // namespace

template <class Scalar>
VirtualRanks<Scalar>::VirtualRanks(const Workload& workload, const Precision& precision,
                                   const Objective<Scalar>& objective, std::unique_ptr<Exchange<Scalar>> exchange)
    : workload_(workload),
      precision_(precision),
      objective_(objective),
      optimizers_(make_optimizers<Scalar>(workload, precision.arithmetic)),
      exchange_(std::move(exchange)) {
  constexpr Scalar kNothing = std::numeric_limits<Scalar>::quiet_NaN();
  const auto numel = static_cast<std::size_t>(workload.buffer.numel());
  for (int index = 0; index < workload.mesh.ranks(); ++index) {
    VirtualRank<Scalar>& rank = ranks_.emplace_back();
    rank.at = workload.mesh.coordinate(index);
    std::vector<Scalar> initial(numel, 0);
    for (const Slot& slot : workload.buffer.slots) {
      for_each_element(workload.model.parameters[slot.parameter], workload.mesh.tp, rank.at.tp, slot.elements.begin,
                       [&](std::int64_t whole, std::int64_t position) {
                         initial[position] = objective_.initial_weight(slot.parameter, whole);
                       });
    }
    rank.seen.assign(numel, kNothing);
    rank.gradient.assign(numel, kNothing);
    rank.master.assign(numel, kNothing);
    for (std::size_t bucket = 0; bucket < workload.buffer.buckets.size(); ++bucket) {
      for (const Range& range : owned_ranges(workload.plan, workload.buffer, static_cast<int>(bucket), rank.at.dp)) {
        std::copy_n(initial.begin() + range.begin, range.size(), rank.master.begin() + range.begin);
      }
    }
    rank.weights = std::move(initial);
    for (Scalar& weight : rank.weights) weight = round_to(precision.wire.parameter, weight);
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::perform(const Action& action, const std::vector<int>& group, std::int64_t iteration) {
  const int first = group.front();
  std::visit(Overloaded{[&](const Forward& step) { forward(ranks_[first], step.layer); },
                        [&](const Backward& step) { backward(ranks_[first], step, iteration); },
                        [&](const ReduceGradients& step) { reduce_gradients(group, step.bucket); },
                        [&](const AgreeOnGradients& step) { agree_on_gradients(group, step.over_tp); },
                        [&](const GatherShards& step) { gather_shards(group, step.group); },
                        [&](const Update& step) { update(first, step.parameter); },
                        [&](const UpdateElements& step) { update_elements(ranks_[first], step.bucket); },
                        [&](const ScatterUpdates& step) { scatter_updates(group, step.group); },
                        [&](const Apply& step) { apply(first, step.parameter); },
                        [&](const GatherParameters& step) { gather_parameters(group, step.bucket); }},
             action);
}

template <class Scalar>
void VirtualRanks<Scalar>::forward(VirtualRank<Scalar>& rank, int layer) {
  for (const Slot& slot : workload_.buffer.slots) {
    if (workload_.model.parameters[slot.parameter].layer != layer) continue;
    std::copy_n(rank.weights.begin() + slot.elements.begin, slot.elements.size(),
                rank.seen.begin() + slot.elements.begin);
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::backward(VirtualRank<Scalar>& rank, const Backward& step, std::int64_t iteration) {
  const Training& training = workload_.training;
  const std::int64_t samples = training.batch / training.micro_batches;
  const bool is_last = step.micro_batch + 1 == training.micro_batches;
  for (const Slot& slot : workload_.buffer.slots) {
    const Parameter& parameter = workload_.model.parameters[slot.parameter];
    if (parameter.layer != step.layer) continue;
    if (step.micro_batch == 0) {
      std::fill(rank.gradient.begin() + slot.elements.begin,
                rank.gradient.begin() + align_up(slot.elements.end, kAlignment), Scalar(0));
    }
    const auto gradients = objective_.gradients(iteration, rank.at.dp, slot.parameter,
                                                {step.micro_batch * samples, (step.micro_batch + 1) * samples});
    for_each_element(parameter, workload_.mesh.tp, rank.at.tp, slot.elements.begin,
                     [&](std::int64_t whole, std::int64_t position) {
                       Scalar& sum = rank.gradient[position];
                       sum = gradients.add_to(sum, whole, rank.seen[position]);
                       if (is_last) sum /= static_cast<Scalar>(training.batch);
                     });
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::reduce_gradients(const std::vector<int>& group, int bucket) {
  const DType type = precision_.wire.gradient;
  const Pieces owned = owned_by(group, bucket);
  if (workload_.plan.gradient_reduction == GradientReduction::padded_reduce_scatter) {
    reduce_padded(group, owned, largest_size(owned));
  } else {
    Pieces pieces = owned;
    const bool all = workload_.plan.gradient_reduction == GradientReduction::all_reduce;
    if (all) {
      const std::vector<Range> even =
          even_ranges(workload_.buffer.buckets[bucket].elements, static_cast<int>(group.size()));
      for (std::size_t member = 0; member < group.size(); ++member) pieces[member] = {even[member]};
    }
    for (std::size_t receiver = 0; receiver < group.size(); ++receiver) {
      for (const Range& range : pieces[receiver]) {
        std::vector<const Scalar*> contributions;
        for (const int member : group) contributions.push_back(ranks_[member].gradient.data() + range.begin);
        Scalar* result = ranks_[group[receiver]].gradient.data() + range.begin;
        exchange_->reduce(group, contributions, range.size(), receiver, type, result);
        if (all) {
          send_round(Collective::reduce_gradients, group, receiver, range.size(), type,
                     [&](int member) { return ranks_[member].gradient.data() + range.begin; });
        }
      }
    }
    if (all) return;
  }
  // Whoever reads a gradient that another rank owns must not find a plausible number.
  for (std::size_t member = 0; member < group.size(); ++member) {
    for (std::size_t other = 0; other < group.size(); ++other) {
      if (other == member) continue;
      for (const Range& range : owned[other]) {
        std::fill_n(ranks_[group[member]].gradient.begin() + range.begin, range.size(),
                    std::numeric_limits<Scalar>::quiet_NaN());
      }
    }
  }
}

/// Every rank lays the bucket out as one block of `largest` elements per owner, and blocks are reduced whole.
template <class Scalar>
void VirtualRanks<Scalar>::reduce_padded(const std::vector<int>& group, const Pieces& owned, std::int64_t largest) {
  std::vector<std::vector<Scalar>> staged;
  for (const int member : group) {
    auto& blocks = staged.emplace_back(static_cast<std::size_t>(largest) * group.size(), Scalar(0));
    for (std::size_t owner = 0; owner < group.size(); ++owner) {
      pack(ranks_[member].gradient, owned[owner], blocks.data() + static_cast<std::int64_t>(owner) * largest);
    }
  }
  for (std::size_t receiver = 0; receiver < group.size(); ++receiver) {
    const std::int64_t block = static_cast<std::int64_t>(receiver) * largest;
    std::vector<const Scalar*> contributions;
    for (const auto& blocks : staged) contributions.push_back(blocks.data() + block);
    Scalar* result = staged[receiver].data() + block;
    exchange_->reduce(group, contributions, largest, receiver, precision_.wire.gradient, result);
    unpack(result, owned[receiver], ranks_[group[receiver]].gradient);
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::agree_on_gradients(const std::vector<int>& group, bool over_tp) {
  std::vector<ExactSum> sums;
  for (const int member : group) sums.push_back(over_tp ? ranks_[member].squares : own_squares(ranks_[member]));
  for (const int receiver : group) {
    VirtualRank<Scalar>& rank = ranks_[receiver];
    rank.squares = {};
    for (std::size_t sender = 0; sender < group.size(); ++sender)
      rank.squares.add(exchange_->send(group[sender], receiver, sums[sender]));
    if (!over_tp) continue;
    rank.agreement = agree(rank.squares, workload_.training.clip_norm);
    rank.steps += rank.agreement.skip ? 0 : 1;
  }
}

template <class Scalar>
ExactSum VirtualRanks<Scalar>::own_squares(const VirtualRank<Scalar>& rank) const {
  ExactSum squares;
  for (const Range& range : counted_elements(workload_.plan, workload_.model, workload_.buffer, rank.at)) {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const auto element = static_cast<double>(rank.gradient[i]);
      squares.add(element * element);
    }
  }
  return squares;
}

template <class Scalar>
void VirtualRanks<Scalar>::gather_shards(const std::vector<int>& group, int micro_group) {
  const bool redundant = workload_.plan.matrix_update == MatrixUpdate::redundant;
  for (const HostedMatrix& member : members(group.front(), micro_group).members) {
    const Parameter& parameter = workload_.model.parameters[member.parameter];
    const Range elements = workload_.buffer.slot_of(member.parameter).elements;
    for (int host = 0; host < workload_.mesh.tp; ++host) {
      if (!redundant && host != member.host) continue;
      Matrix<Scalar> whole(parameter.shape.rows, parameter.shape.cols);
      std::vector<Scalar> shard(static_cast<std::size_t>(elements.size()));
      for (int tp_rank = 0; tp_rank < workload_.mesh.tp; ++tp_rank) {
        exchange_->send(Collective::gather_shards, group[tp_rank], group[host],
                        ranks_[group[tp_rank]].gradient.data() + elements.begin, elements.size(),
                        precision_.wire.gradient, shard.data());
        exchange_->assemble(shard.data(), parameter, workload_.mesh.tp, tp_rank, whole);
      }
      ranks_[group[host]].gathered[member.parameter] = std::move(whole);
    }
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::update(int index, int parameter) {
  VirtualRank<Scalar>& rank = ranks_[index];
  Matrix<Scalar> gradient = take(rank.gathered, parameter, index, "the gathered gradient");
  Matrix<Scalar> whole = Matrix<Scalar>::Zero(gradient.rows(), gradient.cols());
  if (!rank.agreement.skip) {
    gradient *= static_cast<Scalar>(rank.agreement.factor);
    const auto& blocks = workload_.model.parameters[parameter].blocks;
    auto& states = rank.matrix_states[parameter];
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      const Matrix<Scalar> rows = take_block(gradient, blocks[block]);
      if (states.size() == block) {
        states.push_back(optimizers_.matrix->init(shape_of(rows)));
        states.back().turn = workload_.turns[parameter][block];
      }
      place_block(optimizers_.matrix->step(rows, states[block]), blocks[block], whole);
      ++rank.matrix_steps;
    }
  }
  rank.updates[parameter] = std::move(whole);
}

template <class Scalar>
void VirtualRanks<Scalar>::update_elements(VirtualRank<Scalar>& rank, int bucket) {
  if (rank.agreement.skip) return;
  const Bucket& slots = workload_.buffer.buckets[bucket];
  for (int index = slots.first_slot; index < slots.end_slot; ++index) {
    const Slot& slot = workload_.buffer.slots[index];
    if (workload_.model.parameters[slot.parameter].routing != Routing::elementwise) continue;
    for (const Range& range : owned_ranges(workload_.plan, workload_.buffer, bucket, rank.at.dp)) {
      const Range mine = intersection(range, slot.elements);
      if (mine.empty()) continue;
      Matrix<Scalar> gradient(1, mine.size());
      std::copy_n(rank.gradient.begin() + mine.begin, mine.size(), gradient.data());
      gradient *= static_cast<Scalar>(rank.agreement.factor);
      auto [state, fresh] = rank.element_states.try_emplace(mine.begin);
      if (fresh) state->second = optimizers_.elementwise->init(shape_of(gradient));
      const Matrix<Scalar> direction = optimizers_.elementwise->step(gradient, state->second);
      optimizers_.elementwise->apply(rank.steps, direction.data(), rank.master.data() + mine.begin, mine.size());
      refresh_weights(rank, mine);
    }
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::scatter_updates(const std::vector<int>& group, int micro_group) {
  for (const HostedMatrix& member : members(group.front(), micro_group).members) {
    const Parameter& parameter = workload_.model.parameters[member.parameter];
    const int host = group[member.host];
    const Matrix<Scalar> whole = take(ranks_[host].updates, member.parameter, host, "the update");
    const std::int64_t numel = shard_shape(parameter, workload_.mesh.tp).numel();
    std::vector<Scalar> shard(static_cast<std::size_t>(numel));
    for (int tp_rank = 0; tp_rank < workload_.mesh.tp; ++tp_rank) {
      take_shard(whole, parameter, workload_.mesh.tp, tp_rank, shard.data());
      auto& received = ranks_[group[tp_rank]].shard_updates[member.parameter];
      received.resize(shard.size());
      exchange_->send(Collective::scatter_updates, host, group[tp_rank], shard.data(), numel, precision_.wire.update,
                      received.data());
    }
  }
}

template <class Scalar>
void VirtualRanks<Scalar>::apply(int index, int parameter) {
  VirtualRank<Scalar>& rank = ranks_[index];
  const Range elements = workload_.buffer.slot_of(parameter).elements;
  std::vector<Scalar> shard;
  if (workload_.plan.matrix_update == MatrixUpdate::redundant) {
    const Matrix<Scalar> whole = take(rank.updates, parameter, index, "the update");
    shard.resize(static_cast<std::size_t>(elements.size()));
    take_shard(whole, workload_.model.parameters[parameter], workload_.mesh.tp, rank.at.tp, shard.data());
  } else {
    shard = take(rank.shard_updates, parameter, index, "the scattered update");
  }
  if (rank.agreement.skip) return;
  optimizers_.matrix->apply(rank.steps, shard.data(), rank.master.data() + elements.begin, elements.size());
  refresh_weights(rank, elements);
}

template <class Scalar>
void VirtualRanks<Scalar>::gather_parameters(const std::vector<int>& group, int bucket) {
  const Pieces owned = owned_by(group, bucket);
  if (workload_.plan.parameter_gather == ParameterGather::padded_overlapped) {
    gather_padded(group, owned, largest_size(owned));
    return;
  }
  for (std::size_t owner = 0; owner < group.size(); ++owner) {
    for (const Range& range : owned[owner]) {
      send_round(Collective::gather_parameters, group, owner, range.size(), precision_.wire.parameter,
                 [&](int member) { return ranks_[member].weights.data() + range.begin; });
    }
  }
}

/// Every owner lays its share out in a block of `largest` elements, and blocks travel whole.
template <class Scalar>
void VirtualRanks<Scalar>::gather_padded(const std::vector<int>& group, const Pieces& owned, std::int64_t largest) {
  std::map<int, std::vector<Scalar>> blocks;
  for (const int member : group) blocks[member].resize(static_cast<std::size_t>(largest));
  for (std::size_t owner = 0; owner < group.size(); ++owner) {
    pack(ranks_[group[owner]].weights, owned[owner], blocks[group[owner]].data());
    send_round(Collective::gather_parameters, group, owner, largest, precision_.wire.parameter,
               [&](int member) { return blocks[member].data(); });
    for (const int member : group) unpack(blocks[member].data(), owned[owner], ranks_[member].weights);
  }
}

/// What stands at the `owner`-th rank's place goes round the ring, from each rank to its successor, until all have it.
template <class Scalar>
template <class Place>
void VirtualRanks<Scalar>::send_round(Collective collective, const std::vector<int>& group, std::size_t owner,
                                      std::int64_t count, DType type, const Place& place) {
  for (std::size_t hop = 0; hop + 1 < group.size(); ++hop) {
    const int from = group[(owner + hop) % group.size()];
    const int to = group[(owner + hop + 1) % group.size()];
    exchange_->send(collective, from, to, place(from), count, type, place(to));
  }
}

template <class Scalar>
typename VirtualRanks<Scalar>::Pieces VirtualRanks<Scalar>::owned_by(const std::vector<int>& group, int bucket) const {
  Pieces pieces;
  for (const int member : group)
    pieces.push_back(owned_ranges(workload_.plan, workload_.buffer, bucket, ranks_[member].at.dp));
  return pieces;
}

template <class Scalar>
const MicroGroup& VirtualRanks<Scalar>::members(int rank, int micro_group) const {
  return workload_.plan.groups_of(ranks_[rank].at.dp)[micro_group];
}

template <class Scalar>
void VirtualRanks<Scalar>::refresh_weights(VirtualRank<Scalar>& rank, Range elements) {
  for (std::int64_t i = elements.begin; i < elements.end; ++i)
    rank.weights[i] = round_to(precision_.wire.parameter, rank.master[i]);
}

template class VirtualRanks<float>;
template class VirtualRanks<double>;

}  // namespace canzona::reference
