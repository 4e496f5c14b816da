#include "optimized/engine/engine.hpp"

#include <algorithm>
#include <cmath>

#include "reference/core/overloaded.hpp"
#include "reference/model/shard.hpp"

namespace canzona::optimized {

Engine::Engine(const Workload& workload, int rank, Device& device, Communicator& dp, Communicator& tp,
               const reference::Objective<float>& objective, const EngineSettings& settings, Board& board)
    : workload_(workload),
      rank_(rank),
      at_(workload.mesh.coordinate(rank)),
      device_(device),
      dp_(dp),
      tp_(tp),
      objective_(objective),
      settings_(settings),
      board_(board),
      schedule_(make_schedule(workload.plan, workload.model, workload.buffer, rank, workload.training.micro_batches)),
      workspace_(device),
      traffic_(workload.mesh.ranks()) {
  for (auto& stream : streams_) stream = device.make_stream();
  for (std::size_t step = 0; step < schedule_.steps.size(); ++step) {
    begun_.push_back(device.make_event());
    ended_.push_back(device.make_event());
  }
  take_memory();
  prepare_dp_collectives();
  for (int group = 0; group < static_cast<int>(workload.plan.groups_of(at_.dp).size()); ++group)
    prepare_micro_group(group);
  prepare_optimizers();
}

Engine::~Engine() = default;

bool Engine::computes(const HostedMatrix& member) const { return redundant() || member.host == at_.tp; }

DevicePointer<float> Engine::slot(const Buffer& buffer, int parameter) const {
  return buffer.as<float>() + workload_.buffer.slot_of(parameter).elements.begin;
}

void Engine::take_memory() {
  const std::int64_t numel = workload_.buffer.numel();
  for (Buffer* buffer : {&weights_, &gradient_, &master_}) *buffer = device_.allocate_elements<float>(numel);
  std::int64_t widest = 0, largest = 0, matrix = 0, owned = 0;
  for (const Slot& own : workload_.buffer.slots) {
    const Parameter& parameter = this->parameter(own.parameter);
    std::vector<float> initial(static_cast<std::size_t>(own.elements.size()));
    for_each_element(parameter, workload_.mesh.tp, at_.tp, 0, [&](std::int64_t whole, std::int64_t position) {
      initial[static_cast<std::size_t>(position)] = objective_.initial_weight(own.parameter, whole);
    });
    for (const Buffer* buffer : {&weights_, &master_})
      device_.copy(*streams_[0], initial.data(), slot(*buffer, own.parameter).raw(), initial.size() * sizeof(float));
    streams_[0]->synchronize();
    largest = std::max(largest, own.elements.size());
    if (parameter.routing != Routing::matrix) continue;
    const Shape shard = shard_shape(parameter, workload_.mesh.tp);
    widest = std::max({widest, shard.rows, shard.cols});
    matrix = std::max(matrix, parameter.shape.numel());
    owned = std::max(owned, own.elements.size());
  }
  activations_ = device_.allocate_elements<float>(settings_.tokens * widest);
  products_ = device_.allocate_elements<float>(std::max(settings_.tokens * widest, owned));
  for (Buffer* buffer : {&whole_, &stack_gradient_, &stack_update_}) *buffer = device_.allocate_elements<float>(matrix);
  element_update_ = device_.allocate_elements<float>(largest);

  std::int64_t staging = 0;
  for (const MicroGroup& group : workload_.plan.groups_of(at_.dp)) {
    std::int64_t begin = 0;
    for (const HostedMatrix& member : group.members) {
      if (!computes(member)) continue;
      staged_[member.parameter] = begin;
      begin += parameter(member.parameter).shape.numel();
    }
    staging = std::max(staging, begin);
  }
  for (const int half : {0, 1}) {
    gathered_[half] = device_.allocate_elements<float>(staging);
    updates_[half] = device_.allocate_elements<float>(staging);
  }
}

void Engine::prepare_dp_collectives() {
  const Plan& plan = workload_.plan;
  for (std::size_t index = 0; index < workload_.buffer.buckets.size(); ++index) {
    Shares shares;
    for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank)
      shares.push_back(owned_ranges(plan, workload_.buffer, static_cast<int>(index), dp_rank));
    const bool all = plan.gradient_reduction == GradientReduction::all_reduce;
    reductions_.push_back(all ? dp_.all_reduce(device_, gradient_.as<float>(), workload_.buffer.buckets[index].elements)
                              : dp_.reduce_scatter(device_, gradient_.as<float>(), shares));
    const bool gathers = plan.parameter_gather != ParameterGather::none;
    parameter_gathers_.push_back(gathers ? dp_.all_gather(weights_.as<float>(), shares) : nullptr);
  }
  sums_[0] = dp_.all_reduce(&squares_);
  sums_[1] = tp_.all_reduce(&squares_);
}

/// Shards go to whoever computes, one after another in the order of ranks; updates come back into the gradient's place,
/// which is free by then.
void Engine::prepare_micro_group(int index) {
  const int tp = workload_.mesh.tp;
  Transfer gather, scatter;
  for (Transfer* transfer : {&gather, &scatter}) {
    transfer->send.resize(static_cast<std::size_t>(tp));
    transfer->receive.resize(static_cast<std::size_t>(tp));
  }
  for (const HostedMatrix& member : workload_.plan.groups_of(at_.dp)[index].members) {
    group_of_[member.parameter] = index;
    const DevicePointer<float> own = slot(gradient_, member.parameter);
    const std::int64_t count = workload_.buffer.slot_of(member.parameter).elements.size();
    for (int other = 0; other < tp; ++other) {
      if (redundant() || other == member.host) gather.send[other].push_back({own, count});
      if (computes(member)) {
        const std::int64_t place = staged_.at(member.parameter) + other * count;
        gather.receive[other].push_back({gathered_[index % 2].as<float>() + place, count});
        scatter.send[other].push_back({updates_[index % 2].as<float>() + place, count});
      }
      if (other == member.host) scatter.receive[other].push_back({own, count});
    }
  }
  gathers_.push_back(tp_.all_to_all(std::move(gather)));
  scatters_.push_back(redundant() ? nullptr : tp_.all_to_all(std::move(scatter)));
}

void Engine::prepare_optimizers() {
  const bool whole = workload_.optimizer->needs_whole_matrix;
  const std::string elementwise = whole ? "adamw" : workload_.optimizer->name;
  const auto& description = reference::Optimizers::instance().find(elementwise);
  element_options_ = whole ? Options(description.options, {}, elementwise) : workload_.optimizer_options;
  const EngineOptimizer& of_elements = EngineOptimizers::instance().find(elementwise);
  for (std::size_t index = 0; index < workload_.buffer.buckets.size(); ++index) {
    auto& list = elements_.emplace_back();
    const Bucket& bucket = workload_.buffer.buckets[index];
    for (int place = bucket.first_slot; place < bucket.end_slot; ++place) {
      const Slot& own = workload_.buffer.slots[place];
      if (parameter(own.parameter).routing != Routing::elementwise) continue;
      for (const Range& range : owned_ranges(workload_.plan, workload_.buffer, static_cast<int>(index), at_.dp)) {
        const Range mine = intersection(range, own.elements);
        if (!mine.empty())
          list.push_back({mine, of_elements.prepare({element_options_, device_, workspace_, {1, mine.size()}, {0}})});
      }
    }
  }
  if (!whole) return;
  const EngineOptimizer& of_matrix = EngineOptimizers::instance().find(workload_.optimizer->name);
  for (const auto& [index, place] : staged_) {
    const Parameter& parameter = this->parameter(index);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> by_shape;
    for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
      const Shape shape = parameter.block_shape(parameter.blocks[block]);
      by_shape[{shape.rows, shape.cols}].push_back(block);
    }
    for (const auto& [sides, blocks] : by_shape) {
      Preparation own{workload_.optimizer_options, device_, workspace_, {sides.first, sides.second}, {}};
      BlockStack stack;
      for (const std::size_t block : blocks) {
        own.turns.push_back(workload_.turns[static_cast<std::size_t>(index)][block]);
        stack.blocks.push_back(&parameter.blocks[block]);
      }
      stack.optimizer = of_matrix.prepare(own);
      stacks_[index].push_back(std::move(stack));
    }
  }
}

void Engine::iterate() {
  const int count = static_cast<int>(schedule_.steps.size());
  for (int index = 0; index < count; ++index) {
    const Action& action = schedule_.steps[index].action;
    enqueue(index);
    const auto* agreed = std::get_if<AgreeOnGradients>(&action);
    if (agreed == nullptr || !agreed->over_tp) continue;
    ended_[index]->synchronize();
    agreement_ = canzona::agree(squares_, workload_.training.clip_norm);
    steps_ += agreement_.skip ? 0 : 1;
  }
  ++iteration_;
}

void Engine::finish() {
  for (auto& stream : streams_) stream->synchronize();
}

std::vector<StepTime> Engine::times() const {
  std::vector<StepTime> times;
  for (std::size_t step = 0; step < ended_.size(); ++step)
    times.push_back({begun_[step]->seconds(), ended_[step]->seconds()});
  return times;
}

/// Puts a step on its stream, behind those that it waits for on others.
void Engine::enqueue(int index) {
  const Step& step = schedule_.steps[index];
  Stream& stream = *streams_[static_cast<std::size_t>(step.stream)];
  for (const int dependency : step.waits_for) {
    if (schedule_.steps[dependency].stream != step.stream) stream.wait(*ended_[dependency]);
  }
  for (const int dependency : step.waits_for_previous) stream.wait(*ended_[dependency]);
  stream.run([this, action = step.action, place = step.stream] { board_.publish(rank_, place, action); });
  stream.record(*begun_[index]);
  perform(step.action);
  stream.record(*ended_[index]);
  if (!settings_.overlap) ended_[index]->synchronize();
}

/// Where the update is skipped, nothing is gathered, computed, applied or counted, on any rank.
void Engine::perform(const Action& action) {
  Stream& dp = *streams_[static_cast<std::size_t>(canzona::Stream::dp)];
  Stream& tp = *streams_[static_cast<std::size_t>(canzona::Stream::tp)];
  const bool skip = agreement_.skip;
  using Kind = canzona::Collective;
  std::visit(
      Overloaded{
          [&](const Forward& step) { train(step.layer, 1); }, [&](const Backward& step) { backward(step); },
          [&](const ReduceGradients& step) { communicate(*reductions_[step.bucket], Kind::reduce_gradients, dp); },
          [&](const AgreeOnGradients& step) { agree(step.over_tp); },
          [&](const GatherShards& step) {
            if (!skip) communicate(*gathers_[step.group], Kind::gather_shards, tp);
          },
          [&](const Update& step) {
            if (!skip) update(step.parameter);
          },
          [&](const UpdateElements& step) {
            if (!skip) update_elements(step.bucket);
          },
          [&](const ScatterUpdates& step) {
            if (!skip) communicate(*scatters_[step.group], Kind::scatter_updates, tp);
          },
          [&](const Apply& step) {
            if (!skip) apply(step.parameter);
          },
          [&](const GatherParameters& step) {
            if (!skip) communicate(*parameter_gathers_[step.bucket], Kind::gather_parameters, dp);
          }},
      action);
}

void Engine::communicate(Collective& collective, canzona::Collective kind, Stream& stream) {
  traffic_.add(kind, rank_, collective.bytes_sent());
  collective.start(stream);
}

/// The products of a layer's matrices with activations of `tokens` rows: one forward, two backward.
void Engine::train(int layer, int products) {
  Stream& stream = *streams_[static_cast<std::size_t>(canzona::Stream::compute)];
  LinearAlgebra& algebra = device_.linear_algebra();
  for (const Slot& own : workload_.buffer.slots) {
    const Parameter& parameter = this->parameter(own.parameter);
    if (parameter.layer != layer || parameter.routing != Routing::matrix) continue;
    const Shape shard = shard_shape(parameter, workload_.mesh.tp);
    const MatrixIn W{slot(weights_, own.parameter), shard.rows, shard.cols};
    const MatrixIn X{activations_.as<float>(), settings_.tokens, shard.cols};
    const MatrixIn dY{activations_.as<float>(), settings_.tokens, shard.rows};
    const DevicePointer<float> out = products_.as<float>();
    if (products == 1) {
      algebra.product(stream, 1, X, Transpose::no, W, Transpose::yes, 0, {out, settings_.tokens, shard.rows});
    } else {
      algebra.product(stream, 1, dY, Transpose::no, W, Transpose::no, 0, {out, settings_.tokens, shard.cols});
      algebra.product(stream, 1, dY, Transpose::yes, X, Transpose::no, 0, {out, shard.rows, shard.cols});
    }
  }
}

/// The products of backward, whose values nobody reads, and the gradients of the objective.
void Engine::backward(const Backward& step) {
  train(step.layer, 2);
  const Training& training = workload_.training;
  const std::int64_t samples = training.batch / training.micro_batches;
  const bool first = step.micro_batch == 0;
  const bool last = step.micro_batch + 1 == training.micro_batches;
  for (const Slot& own : workload_.buffer.slots) {
    if (parameter(own.parameter).layer != step.layer) continue;
    const auto gradients = objective_.gradients(iteration_, at_.dp, own.parameter,
                                                {step.micro_batch * samples, (step.micro_batch + 1) * samples});
    streams_[static_cast<std::size_t>(canzona::Stream::compute)]->run([this, own, gradients, first, last] {
      float* gradient = gradient_.as<float>().raw();
      const float* weights = weights_.as<float>().raw();
      const auto batch = static_cast<float>(workload_.training.batch);
      for_each_element(parameter(own.parameter), workload_.mesh.tp, at_.tp, own.elements.begin,
                       [&](std::int64_t whole, std::int64_t i) {
                         const float sum = gradients.add_to(first ? 0 : gradient[i], whole, weights[i]);
                         gradient[i] = last ? sum / batch : sum;
                       });
    });
  }
}

void Engine::agree(bool over_tp) {
  Stream& stream = *streams_[static_cast<std::size_t>(over_tp ? canzona::Stream::tp : canzona::Stream::dp)];
  if (!over_tp) stream.run([this] { squares_ = own_squares(); });
  communicate(*sums_[over_tp ? 1 : 0], canzona::Collective::agree_on_gradients, stream);
}

ExactSum Engine::own_squares() const {
  ExactSum squares;
  const float* gradient = gradient_.as<const float>().raw();
  for (const Range& range : counted_elements(workload_.plan, workload_.model, workload_.buffer, at_)) {
    for (std::int64_t i = range.begin; i < range.end; ++i)
      squares.add(static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]));
  }
  return squares;
}

/// Assembles the matrix from its shards, updates it block by block, and leaves the update cut into shards again.
void Engine::update(int index) {
  Stream& stream = *streams_[static_cast<std::size_t>(canzona::Stream::compute)];
  const int half = group_of_.at(index) % 2;
  const Parameter& parameter = this->parameter(index);
  const int tp = workload_.mesh.tp;
  const std::int64_t count = workload_.buffer.slot_of(index).elements.size();
  const DevicePointer<float> shards = gathered_[half].as<float>() + staged_.at(index);
  const DevicePointer<float> leaving = updates_[half].as<float>() + staged_.at(index);
  stream.run([this, &parameter, tp, count, shards] {
    for (int tp_rank = 0; tp_rank < tp; ++tp_rank)
      place_shard<float>(shards.raw() + tp_rank * count, parameter, tp, tp_rank, whole_.as<float>().raw());
  });
  for (const BlockStack& stack : stacks_.at(index)) {
    copy_stack(stream, parameter, stack, false);
    stack.optimizer->step(stream, static_cast<float>(agreement_.factor), stack_gradient_.as<float>(),
                          stack_update_.as<float>());
    copy_stack(stream, parameter, stack, true);
    matrix_steps_ += static_cast<std::int64_t>(stack.blocks.size());
  }
  stream.run([this, &parameter, tp, count, leaving] {
    for (int tp_rank = 0; tp_rank < tp; ++tp_rank)
      take_shard<float>(whole_.as<const float>().raw(), parameter, tp, tp_rank, leaving.raw() + tp_rank * count);
  });
}

/// The rows of a stack's blocks, from the whole gradient into the stack, or from the stack's update back into the
/// whole.
void Engine::copy_stack(Stream& stream, const Parameter& parameter, const BlockStack& stack, bool back) {
  std::int64_t next = 0;
  for (const canzona::Block* block : stack.blocks) {
    for (const Range& range : block->rows) {
      const DevicePointer<float> whole = whole_.as<float>() + range.begin * parameter.shape.cols;
      const std::int64_t elements = range.size() * parameter.shape.cols;
      const DevicePointer<float> stacked = (back ? stack_update_ : stack_gradient_).as<float>() + next;
      device_.copy(stream, (back ? stacked : whole).raw(), (back ? whole : stacked).raw(),
                   static_cast<std::size_t>(elements) * sizeof(float));
      next += elements;
    }
  }
}

void Engine::update_elements(int bucket) {
  Stream& stream = *streams_[static_cast<std::size_t>(canzona::Stream::compute)];
  for (OwnedElements& own : elements_[bucket]) {
    const std::int64_t count = own.range.size();
    const DevicePointer<float> update = element_update_.as<float>();
    own.optimizer->step(stream, static_cast<float>(agreement_.factor), gradient_.as<float>() + own.range.begin, update);
    apply_update(stream, element_options_, update, master_.as<float>() + own.range.begin,
                 weights_.as<float>() + own.range.begin, count);
  }
}

/// The update of this rank's shard: in the gradient's place where it was scattered, beside the others where every rank
/// computed it.
void Engine::apply(int index) {
  Stream& stream = *streams_[static_cast<std::size_t>(canzona::Stream::compute)];
  const std::int64_t count = workload_.buffer.slot_of(index).elements.size();
  const DevicePointer<float> update =
      redundant() ? updates_[group_of_.at(index) % 2].as<float>() + staged_.at(index) + at_.tp * count
                  : slot(gradient_, index);
  apply_update(stream, workload_.optimizer_options, update, slot(master_, index), slot(weights_, index), count);
}

}  // namespace canzona::optimized
