// Everything that an engine takes and prepares before its first iteration.
#include <algorithm>

#include "optimized/engine/engine.hpp"
#include "reference/core/error.hpp"
#include "reference/core/parallel.hpp"
#include "reference/model/shard.hpp"

namespace canzona::optimized {

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
  const Ledger before = device_.taken();
  for (const Step& step : schedule_.steps) names_.push_back(describe(step.action));
  take_memory();
  draw_noise();
  with_weight_type(type(), [&]<class T>(T) {
    const Device::Taking taking(device_, Purpose::activations);
    const auto shard_of = [this](int index) {
      const Shape shard = shard_shape(parameter(index), workload_.mesh.tp);
      return MatrixView<const T>{place<T>(weights_, begin_of(index)), shard.rows, shard.cols};
    };
    layers_ = std::make_unique<LayersIn<T>>(workload.model, rank, settings.tokens, on(canzona::Stream::compute),
                                            on(canzona::Stream::tp), shard_of);
  });
  prepare_dp_collectives();
  for (int group = 0; group < static_cast<int>(workload.plan.groups_of(at_.dp).size()); ++group)
    prepare_micro_group(group);
  prepare_optimizers();
  memory_ = device_.taken().since(before);
}

void Engine::take_memory() {
  const std::int64_t numel = workload_.buffer.numel();
  const auto bytes = [](std::int64_t elements, DType of) { return static_cast<std::size_t>(elements * bytes_of(of)); };
  const auto take = [&](Purpose purpose, std::size_t size) {
    const Device::Taking taking(device_, purpose);
    return device_.allocate(size);
  };
  gradient_ = take(Purpose::gradients, bytes(numel, DType::fp32));
  weights_ = take(Purpose::weights, bytes(numel, type()));
  if (type() != DType::fp32) take_masters();
  const std::vector<float> initial =
      draw([this](int parameter, std::int64_t whole) { return objective_.initial_weight(parameter, whole); });
  std::int64_t largest = 0;
  for (const Slot& own : workload_.buffer.slots) {
    largest = std::max(largest, own.elements.size());
    if (!initial.empty()) put_weights(own, initial.data() + own.elements.begin);
  }
  element_update_ = take(Purpose::scratch, bytes(largest, DType::fp32));

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
    if (!is_whole()) gathered_[half] = take(Purpose::micro_groups, bytes(staging, DType::fp32));
    updates_[half] = take(Purpose::micro_groups, bytes(staging, type()));
  }
}

void Engine::take_masters() {
  std::int64_t count = 0;
  for (const Range& range : owned()) {
    masters_of_[range.begin] = count;
    count += range.size();
  }
  const Device::Taking taking(device_, Purpose::masters);
  masters_ = device_.allocate_elements<float>(count);
}

/// element(parameter, index in the whole) of all elements, flat as the workload's buffer, by all cores; nothing where
/// the device only counts.
template <class Element>
std::vector<float> Engine::draw(const Element& element) const {
  std::vector<float> drawn(static_cast<std::size_t>(device_.holds_values() ? workload_.buffer.numel() : 0));
  if (drawn.empty()) return drawn;
  for_each_in_parallel(static_cast<int>(workload_.buffer.slots.size()), [&](int index) {
    const Slot& own = workload_.buffer.slots[static_cast<std::size_t>(index)];
    for_each_element(parameter(own.parameter), workload_.mesh.tp, at_.tp, own.elements.begin,
                     [&](std::int64_t whole, std::int64_t position) {
                       drawn[static_cast<std::size_t>(position)] = element(own.parameter, whole);
                     });
  });
  return drawn;
}

/// A slot's first weights, and of those that this rank owns their masters.
void Engine::put_weights(const Slot& slot, const float* initial) {
  with_weight_type(type(), [&]<class T>(T) {
    std::vector<T> rounded;
    for (std::int64_t i = 0; i < slot.elements.size(); ++i) rounded.push_back(static_cast<T>(initial[i]));
    device_.copy(*streams_[0], rounded.data(), place<T>(weights_, slot.elements.begin).raw(),
                 rounded.size() * sizeof(T));
    streams_[0]->synchronize();
  });
  if (type() == DType::fp32) return;
  for (const Range& range : owned()) {
    const Range mine = intersection(range, slot.elements);
    if (mine.empty()) continue;
    device_.copy(*streams_[0], initial + (mine.begin - slot.elements.begin), master(mine.begin).raw(),
                 static_cast<std::size_t>(mine.size()) * sizeof(float));
  }
  streams_[0]->synchronize();
}

void Engine::draw_noise() {
  const Device::Taking taking(device_, Purpose::noise);
  const std::int64_t samples = workload_.training.batch;
  for (std::int64_t iteration = 0; iteration < objective_.period(); ++iteration) {
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::vector<float> drawn = draw([&](int parameter, std::int64_t whole) {
        return objective_.noise(iteration, at_.dp, parameter, sample, whole);
      });
      Buffer& buffer = noise_.emplace_back(device_.allocate_elements<float>(workload_.buffer.numel()));
      device_.copy(*streams_[0], drawn.data(), buffer.as<float>().raw(), drawn.size() * sizeof(float));
      streams_[0]->synchronize();
    }
  }
}

void Engine::prepare_dp_collectives() {
  const Device::Taking taking(device_, Purpose::communication);
  const Plan& plan = workload_.plan;
  for (std::size_t index = 0; index < workload_.buffer.buckets.size(); ++index) {
    Shares shares;
    for (int dp_rank = 0; dp_rank < plan.mesh.dp; ++dp_rank)
      shares.push_back(owned_ranges(plan, workload_.buffer, static_cast<int>(index), dp_rank));
    const bool all = plan.gradient_reduction == GradientReduction::all_reduce;
    const DevicePointer<float> gradient = gradient_.as<float>();
    const DType travels = settings_.precision.wire.gradient;
    if (plan.mesh.dp == 1 && travels == DType::fp32) {
      reductions_.push_back(nullptr);  // its average is what it is
      parameter_gathers_.push_back(nullptr);
      continue;
    }
    reductions_.push_back(
        all ? rank_.dp.all_reduce(device_, gradient, workload_.buffer.buckets[index].elements, travels)
            : rank_.dp.reduce_scatter(device_, gradient, shares, travels));
    const bool gathers = plan.parameter_gather != ParameterGather::none;
    parameter_gathers_.push_back(!gathers ? nullptr : with_weight_type(type(), [&]<class T>(T) {
      return rank_.dp.all_gather(device_, weights_.as<T>(), shares);
    }));
  }
  squares_ = device_.allocate_elements<std::int64_t>(ExactSum::kIntegers);
  agreed_squares_ = device_.allocate_on_host(static_cast<std::size_t>(ExactSum::bytes()));
  sums_[0] = rank_.dp.all_reduce(device_, squares_.as<std::int64_t>(), ExactSum::kIntegers);
  sums_[1] = rank_.tp.all_reduce(device_, squares_.as<std::int64_t>(), ExactSum::kIntegers);
}

/// Shards go to whoever computes, one after another in the order of ranks; updates come back into the gradient's place,
/// which is free by then.
void Engine::prepare_micro_group(int index) {
  const int tp = workload_.mesh.tp;
  Transfer gather(tp), scatter(tp);
  for (const HostedMatrix& member : workload_.plan.groups_of(at_.dp)[index].members) {
    group_of_[member.parameter] = index;
    if (is_whole()) continue;
    const DevicePointer<float> own = slot(gradient_, member.parameter);
    const std::int64_t count = workload_.buffer.slot_of(member.parameter).elements.size();
    for (int other = 0; other < tp; ++other) {
      if (redundant() || other == member.host) gather.add_send(other, own, count);
      const std::int64_t begin = other * count;
      if (computes(member))
        gather.add_receive(other, gathered_[index % 2].as<float>() + staged_.at(member.parameter) + begin, count);
      with_weight_type(type(), [&]<class T>(T) {
        if (computes(member)) scatter.add_send(other, updates_of<T>(member.parameter) + begin, count);
        if (other == member.host) scatter.add_receive(other, returned_update<T>(member.parameter), count);
      });
    }
  }
  gathers_.push_back(is_whole() ? nullptr : rank_.tp.all_to_all(std::move(gather)));
  scatters_.push_back(is_whole() || redundant() ? nullptr : rank_.tp.all_to_all(std::move(scatter)));
}

void Engine::prepare_optimizers() {
  const Device::Taking taking(device_, Purpose::optimizer_state);
  const Options& options = workload_.element_options;
  of_elements_ = &EngineOptimizers::instance().find(workload_.element_optimizer->name);
  for (std::size_t index = 0; index < workload_.buffer.buckets.size(); ++index) {
    auto& list = elements_.emplace_back();
    const Bucket& bucket = workload_.buffer.buckets[index];
    for (int place = bucket.first_slot; place < bucket.end_slot; ++place) {
      const Slot& own = workload_.buffer.slots[place];
      if (parameter(own.parameter).routing != Routing::elementwise) continue;
      for (const Range& range : owned_ranges(workload_.plan, workload_.buffer, static_cast<int>(index), at_.dp)) {
        const Range mine = intersection(range, own.elements);
        if (!mine.empty())
          list.push_back({mine, of_elements_->prepare({options, device_, workspace_, {1, mine.size()}, {0}})});
      }
    }
  }
  element_work_.resize(elements_.size());
  for (Buffer* values : {&element_values_, &matrix_values_}) *values = device_.allocate(sizeof(StepValues));
  if (workload_.optimizer->needs_whole_matrix) prepare_stacks();
}

void Engine::prepare_stacks() {
  of_matrices_ = &EngineOptimizers::instance().find(workload_.optimizer->name);
  std::int64_t largest = 0;
  for (const auto& [index, place] : staged_) {
    const Parameter& parameter = this->parameter(index);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> by_shape;
    for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
      const Shape shape = parameter.block_shape(parameter.blocks[block]);
      by_shape[{shape.rows, shape.cols}].push_back(block);
    }
    for (const auto& [sides, blocks] : by_shape) {
      Preparation own{workload_.optimizer_options,   device_, workspace_,
                      {sides.first, sides.second},   {},      settings_.variant,
                      settings_.precision.arithmetic};
      std::vector<const canzona::Block*> stacked;
      for (const std::size_t block : blocks) {
        own.turns.push_back(workload_.turns[static_cast<std::size_t>(index)][block]);
        stacked.push_back(&parameter.blocks[block]);
      }
      BlockStack& stack = stacks_[index].emplace_back();
      stack.optimizer = of_matrices_->prepare(own);
      stack.count = own.count();
      stack.rectangles = rectangles_of(parameter, workload_.mesh.tp, stacked);
      const Rectangle& first = stack.rectangles.front();
      stack.is_in_place = stack.rectangles.size() == 1 && first.width == own.shape.cols;
      largest = std::max(largest, own.count() * own.shape.numel());
    }
  }
  const Device::Taking taking(device_, Purpose::scratch);
  for (Buffer* buffer : {&stack_gradient_, &stack_update_}) *buffer = device_.allocate_elements<float>(largest);
}

}  // namespace canzona::optimized
