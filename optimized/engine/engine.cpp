#include "optimized/engine/engine.hpp"

#include <algorithm>
#include <limits>

#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"
#include "reference/model/shard.hpp"

namespace canzona::optimized {

namespace {

/// g ← (0 or g) + (N + c·W), the gradient of one sample; divided by the number of samples after the last.
struct AddGradient {
  bool first;
  float curvature;
  float divisor;
  const float* noise;
  const float* weights;
  float* gradient;

  void operator()(std::int64_t i) {
    gradient[i] = ((first ? 0.0f : gradient[i]) + (noise[i] + curvature * weights[i])) / divisor;
  }
};

struct Fill {
  float value;
  float* values;
  void operator()(std::int64_t i) { values[i] = value; }
};

}  // namespace

Engine::Engine(const Workload& workload, Rank& rank, const reference::Objective<float>& objective,
               const EngineSettings& settings)
    : workload_(workload),
      rank_(rank),
      at_(rank.at),
      device_(rank.device),
      objective_(objective),
      settings_(settings),
      rules_(reference::make_optimizers<float>(workload, DType::fp32)),
      schedule_(
          make_schedule(workload.plan, workload.model, workload.buffer, rank.index, workload.training.micro_batches)),
      workspace_(device_),
      events_(settings.kept_iterations),
      traffic_(workload.mesh.ranks()) {
  if (objective.period() < 1) throw Error("the engine draws its noise beforehand: the objective has to recur");
  if (settings.kept_iterations < 2) throw Error("an iteration waits for steps of the one before: two have to be kept");
  for (auto& stream : streams_) stream = device_.make_stream();
  for (auto& iteration : events_) {
    for (std::size_t step = 0; step < schedule_.steps.size(); ++step)
      iteration.push_back({device_.make_event(), device_.make_event()});
  }
  for (int layer = 0; layer <= workload.model.layers + 1; ++layer) products_of_layer_.push_back(products_of(layer));
  take_memory();
  draw_noise();
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
  std::int64_t widest = 0, largest = 0, matrix = 0, product = 0;
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
    if (parameter.routing == Routing::matrix) matrix = std::max(matrix, parameter.shape.numel());
  }
  for (const auto& parameters : products_of_layer_) {
    for (const int index : parameters) {
      const Shape shard = shard_shape(parameter(index), workload_.mesh.tp);
      widest = std::max({widest, shard.rows, shard.cols});
      product = std::max(product, shard.numel());
    }
  }
  activations_ = device_.allocate_elements<float>(settings_.tokens * widest);
  products_ = device_.allocate_elements<float>(std::max(settings_.tokens * widest, product));
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

void Engine::draw_noise() {
  const std::int64_t samples = workload_.training.batch;
  std::vector<float> drawn(static_cast<std::size_t>(workload_.buffer.numel()));
  for (std::int64_t iteration = 0; iteration < objective_.period(); ++iteration) {
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (const Slot& own : workload_.buffer.slots) {
        for_each_element(parameter(own.parameter), workload_.mesh.tp, at_.tp, own.elements.begin,
                         [&](std::int64_t whole, std::int64_t position) {
                           drawn[static_cast<std::size_t>(position)] =
                               objective_.noise(iteration, at_.dp, own.parameter, sample, whole);
                         });
      }
      Buffer& buffer = noise_.emplace_back(device_.allocate_elements<float>(workload_.buffer.numel()));
      device_.copy(*streams_[0], drawn.data(), buffer.as<float>().raw(), drawn.size() * sizeof(float));
      streams_[0]->synchronize();
    }
  }
}

/// The weights that a layer multiplies activations by: its matrices; of the last layer the output's, which may be the
/// embedding's.
std::vector<int> Engine::products_of(int layer) const {
  std::vector<int> parameters;
  const Model& model = workload_.model;
  for (int index = 0; index < static_cast<int>(model.parameters.size()); ++index) {
    const Parameter& own = model.parameters[index];
    if (own.layer == layer && layer > 0 && own.shape.shorter() > 1) parameters.push_back(index);
  }
  const bool is_output = layer == model.layers + 1;
  for (int index = 0; is_output && parameters.empty() && index < static_cast<int>(model.parameters.size()); ++index) {
    if (model.parameters[index].layer == 0 && model.parameters[index].shape.shorter() > 1) parameters.push_back(index);
  }
  return parameters;
}

void Engine::prepare_dp_collectives() {
  const Plan& plan = workload_.plan;
  for (std::size_t index = 0; index < workload_.buffer.buckets.size(); ++index) {
    Shares shares;
    for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank)
      shares.push_back(owned_ranges(plan, workload_.buffer, static_cast<int>(index), dp_rank));
    const bool all = plan.gradient_reduction == GradientReduction::all_reduce;
    const DevicePointer<float> gradient = gradient_.as<float>();
    reductions_.push_back(
        all ? rank_.dp.all_reduce(device_, gradient, workload_.buffer.buckets[index].elements, settings_.gradient)
            : rank_.dp.reduce_scatter(device_, gradient, shares, settings_.gradient));
    const bool gathers = plan.parameter_gather != ParameterGather::none;
    parameter_gathers_.push_back(gathers ? rank_.dp.all_gather(device_, weights_.as<float>(), shares, DType::fp32)
                                         : nullptr);
  }
  sums_[0] = rank_.dp.all_reduce(&squares_);
  sums_[1] = rank_.tp.all_reduce(&squares_);
}

/// Shards go to whoever computes, one after another in the order of ranks; updates come back into the gradient's place,
/// which is free by then.
void Engine::prepare_micro_group(int index) {
  const int tp = workload_.mesh.tp;
  Transfer gather(tp), scatter(tp);
  for (const HostedMatrix& member : workload_.plan.groups_of(at_.dp)[index].members) {
    group_of_[member.parameter] = index;
    const DevicePointer<float> own = slot(gradient_, member.parameter);
    const std::int64_t count = workload_.buffer.slot_of(member.parameter).elements.size();
    for (int other = 0; other < tp; ++other) {
      if (redundant() || other == member.host) gather.add_send(other, own, count);
      if (computes(member)) {
        const std::int64_t place = staged_.at(member.parameter) + other * count;
        gather.add_receive(other, gathered_[index % 2].as<float>() + place, count);
        scatter.add_send(other, updates_[index % 2].as<float>() + place, count);
      }
      if (other == member.host) scatter.add_receive(other, own, count);
    }
  }
  gathers_.push_back(rank_.tp.all_to_all(std::move(gather)));
  scatters_.push_back(redundant() ? nullptr : rank_.tp.all_to_all(std::move(scatter)));
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
      Preparation own{workload_.optimizer_options, device_, workspace_,
                      {sides.first, sides.second}, {},      settings_.variant};
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
    events_[static_cast<std::size_t>(iteration_) % events_.size()][static_cast<std::size_t>(index)]
        .ended->synchronize();
    agreement_ = canzona::agree(squares_, workload_.training.clip_norm);
    steps_ += agreement_.skip ? 0 : 1;
  }
  ++iteration_;
}

void Engine::finish() {
  for (auto& stream : streams_) stream->synchronize();
}

std::vector<StepTime> Engine::times(std::int64_t iteration) const {
  std::vector<StepTime> times;
  for (const StepEvents& step : events_[static_cast<std::size_t>(iteration) % events_.size()])
    times.push_back({step.begun->seconds(), step.ended->seconds()});
  return times;
}

std::int64_t Engine::failed_refreshes() const {
  std::int64_t failed = 0;
  for (const auto& [parameter, stacks] : stacks_) {
    for (const BlockStack& stack : stacks) failed += stack.optimizer->failed_refreshes();
  }
  return failed;
}

/// Puts a step on its stream, behind those that it waits for on others.
void Engine::enqueue(int index) {
  const Step& step = schedule_.steps[index];
  const auto now = static_cast<std::size_t>(iteration_) % events_.size();
  const auto before = (now + events_.size() - 1) % events_.size();
  Stream& stream = on(step.stream);
  for (const int dependency : step.waits_for) {
    if (schedule_.steps[dependency].stream != step.stream) stream.wait(*events_[now][dependency].ended);
  }
  for (const int dependency : step.waits_for_previous) stream.wait(*events_[before][dependency].ended);
  stream.run([this, action = step.action, place = step.stream] { rank_.board.publish(rank_.index, place, action); });
  stream.record(*events_[now][index].begun);
  perform(step.action);
  stream.record(*events_[now][index].ended);
  if (!settings_.overlap) events_[now][index].ended->synchronize();
}

/// Where the update is skipped, nothing is gathered, computed, applied or counted, on any rank.
void Engine::perform(const Action& action) {
  Stream& dp = on(canzona::Stream::dp);
  Stream& tp = on(canzona::Stream::tp);
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
  traffic_.add(kind, rank_.index, collective.bytes_sent());
  collective.start(stream);
}

/// The products of a layer's weights with activations of `tokens` rows: one forward, two backward. Nobody reads what
/// they give.
void Engine::train(int layer, int products) {
  Stream& stream = on(canzona::Stream::compute);
  LinearAlgebra& algebra = device_.linear_algebra();
  for (const int index : products_of_layer_[static_cast<std::size_t>(layer)]) {
    const Shape shard = shard_shape(parameter(index), workload_.mesh.tp);
    const MatrixIn W{slot(weights_, index), shard.rows, shard.cols};
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

void Engine::backward(const Backward& step) {
  train(step.layer, 2);
  for (const Slot& own : workload_.buffer.slots) {
    if (parameter(own.parameter).layer == step.layer) differentiate(own, step);
  }
}

/// The gradients of the objective over a micro-batch's samples, in the reference's expressions and order.
void Engine::differentiate(const Slot& own, const Backward& step) {
  Stream& stream = on(canzona::Stream::compute);
  const Training& training = workload_.training;
  const std::int64_t samples = training.batch / training.micro_batches;
  const std::int64_t first_sample = step.micro_batch * samples;
  for (std::int64_t sample = first_sample; sample < first_sample + samples; ++sample) {
    const bool last = sample + 1 == training.batch;
    const Buffer& noise = noise_[static_cast<std::size_t>(iteration_ % objective_.period() * training.batch + sample)];
    launch(stream, own.elements.size(),
           AddGradient{sample == 0, static_cast<float>(reference::Objective<float>::kCurvature),
                       last ? static_cast<float>(training.batch) : 1.0f, slot(noise, own.parameter).raw(),
                       slot(weights_, own.parameter).raw(), slot(gradient_, own.parameter).raw()});
  }
  const int tp = workload_.mesh.tp;
  const Parameter& parameter = this->parameter(own.parameter);
  const bool has_first = whole_row(parameter, tp, at_.tp, 0) == 0 && first_column(parameter, tp, at_.tp) == 0;
  if (has_first && objective_.is_poisoned(iteration_, at_.dp, own.parameter))
    launch(stream, 1, Fill{std::numeric_limits<float>::infinity(), slot(gradient_, own.parameter).raw()});
}

void Engine::agree(bool over_tp) {
  Stream& stream = on(over_tp ? canzona::Stream::tp : canzona::Stream::dp);
  if (!over_tp) stream.run([this] { squares_ = own_squares(); });
  communicate(*sums_[over_tp ? 1 : 0], canzona::Collective::agree_on_gradients, stream);
}

ExactSum Engine::own_squares() const {
  ExactSum squares;
  const float* gradient = gradient_.as<const float>().raw();
  for (const Range& range : counted_elements(workload_.plan, workload_.model, workload_.buffer, at_))
    squares.add_squares(gradient + range.begin, range.size());
  return squares;
}

/// Assembles the matrix from its shards, updates it block by block, and leaves the update cut into shards again.
void Engine::update(int index) {
  Stream& stream = on(canzona::Stream::compute);
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
  Stream& stream = on(canzona::Stream::compute);
  const bool moves = rules_.elementwise->moves(steps_);
  for (OwnedElements& own : elements_[bucket]) {
    const std::int64_t count = own.range.size();
    const DevicePointer<float> update = element_update_.as<float>();
    own.optimizer->step(stream, static_cast<float>(agreement_.factor), gradient_.as<float>() + own.range.begin, update);
    if (!moves) continue;
    apply_update(stream, element_options_, update, master_.as<float>() + own.range.begin,
                 weights_.as<float>() + own.range.begin, count);
  }
}

/// The update of this rank's shard: in the gradient's place where it was scattered, beside the others where every rank
/// computed it.
void Engine::apply(int index) {
  if (!rules_.matrix->moves(steps_)) return;
  Stream& stream = on(canzona::Stream::compute);
  const std::int64_t count = workload_.buffer.slot_of(index).elements.size();
  const DevicePointer<float> update =
      redundant() ? updates_[group_of_.at(index) % 2].as<float>() + staged_.at(index) + at_.tp * count
                  : slot(gradient_, index);
  apply_update(stream, workload_.optimizer_options, update, slot(master_, index), slot(weights_, index), count);
}

}  // namespace canzona::optimized
