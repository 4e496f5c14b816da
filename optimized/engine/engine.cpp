#include "optimized/engine/engine.hpp"

#include <algorithm>
#include <exception>
#include <limits>

#include "optimized/device/functors.hpp"
#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"
#include "reference/model/shard.hpp"

namespace canzona::optimized {

namespace {

/// g ← (0 or g) + (N + c·W), the gradient of one sample; divided by the number of samples after the last.
template <class Weight>
struct AddGradient {
  bool first;
  float curvature;
  float divisor;
  const float* noise;
  const Weight* weights;
  float* gradient;

  CANZONA_OPERANDS(noise, weights, gradient)
  CANZONA_KERNEL void operator()(float own_noise, Weight weight, float& own_gradient) const {
    const float own = own_noise + curvature * static_cast<float>(weight);
    own_gradient = ((first ? 0.0f : own_gradient) + own) / divisor;
  }
};

/// A rectangle of an update, rounded to the type in which it travels.
template <class T>
struct RoundRectangle {
  std::int64_t width;
  const float* from;
  std::int64_t from_pitch;
  T* to;
  std::int64_t to_pitch;

  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    const std::int64_t col = i - row * width;
    to[row * to_pitch + col] = static_cast<T>(from[row * from_pitch + col]);
  }
};

}  // namespace

Engine::~Engine() = default;

bool Engine::computes(const HostedMatrix& member) const { return redundant() || member.host == at_.tp; }

std::vector<Range> Engine::owned() const {
  std::vector<Range> all;
  for (std::size_t bucket = 0; bucket < workload_.buffer.buckets.size(); ++bucket) {
    for (const Range& range : owned_ranges(workload_.plan, workload_.buffer, static_cast<int>(bucket), at_.dp))
      all.push_back(range);
  }
  return all;
}

DevicePointer<float> Engine::master(std::int64_t position) const {
  if (type() == DType::fp32) return place<float>(weights_, position);
  const auto run = std::prev(masters_of_.upper_bound(position));
  return masters_.as<float>() + (run->second + position - run->first);
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
    ExactSum squares;
    squares.add(agreed_squares_.as<const std::int64_t>().raw());
    agreement_ = canzona::agree(squares, workload_.training.clip_norm);
    if (agreement_.skip) continue;
    ++steps_;
    put_step_values();
  }
  ++iteration_;
}

void Engine::finish() {
  std::exception_ptr failure;
  for (auto& stream : streams_) {
    try {
      stream->synchronize();
    } catch (...) {  // the others' work has to end too
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<StepTime> Engine::times(std::int64_t iteration) const {
  std::vector<StepTime> times;
  for (const StepEvents& step : events_[static_cast<std::size_t>(iteration) % events_.size()])
    times.push_back({step.begun->seconds(), step.ended->seconds()});
  return times;
}

std::vector<float> Engine::weights(const Range& elements) {
  return with_weight_type(type(), [&]<class T>(T) {
    std::vector<T> weights(static_cast<std::size_t>(elements.size()));
    Stream& stream = on(canzona::Stream::compute);
    device_.copy(stream, place<T>(weights_, elements.begin).raw(), weights.data(), weights.size() * sizeof(T));
    stream.synchronize();
    std::vector<float> widened;
    widened.reserve(weights.size());
    for (const T weight : weights) widened.push_back(static_cast<float>(weight));
    return widened;
  });
}

std::vector<float> Engine::masters(const Range& elements) {
  std::vector<float> masters(static_cast<std::size_t>(elements.size()));
  Stream& stream = on(canzona::Stream::compute);
  device_.copy(stream, master(elements.begin).raw(), masters.data(), masters.size() * sizeof(float));
  stream.synchronize();
  return masters;
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
  device_.begin_range(names_[static_cast<std::size_t>(index)]);
  perform(step.action);
  device_.end_range();
  stream.record(*events_[now][index].ended);
  if (!settings_.overlap) events_[now][index].ended->synchronize();
}

/// Where the update is skipped, nothing is gathered, computed, applied or counted, on any rank.
void Engine::perform(const Action& action) {
  Stream& dp = on(canzona::Stream::dp);
  Stream& tp = on(canzona::Stream::tp);
  const bool skip = agreement_.skip;
  using Kind = canzona::Collective;
  std::visit(Overloaded{[&](const Forward& step) { forward(step); }, [&](const Backward& step) { backward(step); },
                        [&](const ReduceGradients& step) {
                          communicate(reductions_[step.bucket].get(), Kind::reduce_gradients, dp);
                        },
                        [&](const AgreeOnGradients& step) { agree(step.over_tp); },
                        [&](const GatherShards& step) {
                          if (!skip) communicate(gathers_[step.group].get(), Kind::gather_shards, tp);
                        },
                        [&](const Update& step) {
                          if (!skip) update(step.parameter);
                        },
                        [&](const UpdateElements& step) {
                          if (!skip) update_elements(step.bucket);
                        },
                        [&](const ScatterUpdates& step) {
                          if (!skip) communicate(scatters_[step.group].get(), Kind::scatter_updates, tp);
                        },
                        [&](const Apply& step) {
                          if (!skip) apply(step.parameter);
                        },
                        [&](const GatherParameters& step) {
                          if (!skip) communicate(parameter_gathers_[step.bucket].get(), Kind::gather_parameters, dp);
                        }},
             action);
}

/// Nothing where a group of one has nothing to tell.
void Engine::communicate(Collective* collective, canzona::Collective kind, Stream& stream) {
  if (collective == nullptr) return;
  traffic_.add(kind, rank_.index, collective->bytes_sent());
  collective->start(stream);
}

void Engine::forward(const Forward& step) {
  traffic_.add(canzona::Collective::reduce_activations, rank_.index, layers_->forward(step.layer));
}

void Engine::backward(const Backward& step) {
  traffic_.add(canzona::Collective::reduce_activations, rank_.index, layers_->backward(step.layer));
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
    with_weight_type(type(), [&]<class T>(T) {
      launch(stream, own.elements.size(),
             AddGradient<T>{sample == 0, static_cast<float>(reference::Objective<float>::kCurvature),
                            last ? static_cast<float>(training.batch) : 1.0f, slot(noise, own.parameter).raw(),
                            place<T>(weights_, own.elements.begin).raw(), slot(gradient_, own.parameter).raw()});
    });
  }
  const int tp = workload_.mesh.tp;
  const Parameter& parameter = this->parameter(own.parameter);
  const bool has_first = whole_row(parameter, tp, at_.tp, 0) == 0 && first_column(parameter, tp, at_.tp) == 0;
  if (has_first && objective_.is_poisoned(iteration_, at_.dp, own.parameter))
    launch(stream, 1, Fill<float>{std::numeric_limits<float>::infinity(), slot(gradient_, own.parameter).raw()});
}

void Engine::agree(bool over_tp) {
  Stream& stream = on(over_tp ? canzona::Stream::tp : canzona::Stream::dp);
  if (!over_tp) add_own_squares(stream);
  communicate(sums_[over_tp ? 1 : 0].get(), canzona::Collective::agree_on_gradients, stream);
  if (over_tp) {
    device_.copy(stream, squares_.as<std::int64_t>().raw(), agreed_squares_.as<std::int64_t>().raw(),
                 static_cast<std::size_t>(ExactSum::bytes()));
  }
}

void Engine::add_own_squares(Stream& stream) {
  const DevicePointer<std::int64_t> squares = squares_.as<std::int64_t>();
  launch(stream, ExactSum::kIntegers, Fill<std::int64_t>{0, squares.raw()});
  for (const Range& range : counted_elements(workload_.plan, workload_.model, workload_.buffer, at_))
    launch_exact_squares(stream, gradient_.as<const float>() + range.begin, range.size(), squares);
}

/// All updates and applications are on the compute stream: those of the step before have read theirs by then.
void Engine::put_step_values() {
  Stream& stream = on(canzona::Stream::compute);
  put(stream, of_elements_->values(workload_.element_options, steps_, agreement_.factor),
      element_values_.as<StepValues>());
  if (of_matrices_ == nullptr) return;
  put(stream, of_matrices_->values(workload_.optimizer_options, steps_, agreement_.factor),
      matrix_values_.as<StepValues>());
}

void Engine::update(int index) {
  for (BlockStack& stack : stacks_.at(index)) {
    run(stack.work, stack.optimizer->form(steps_), [&] { update_stack(stack, index); });
    matrix_steps_ += stack.count;
  }
}

/// Brings the shards' rows together, block by block, updates the stack of blocks, and leaves the update cut into
/// shards.
void Engine::update_stack(BlockStack& stack, int index) {
  Stream& stream = on(canzona::Stream::compute);
  const DevicePointer<float> shards = shards_of(index);
  const Rectangle& first = stack.rectangles.front();
  DevicePointer<float> gradient = shards + first.shard;
  if (!stack.is_in_place) {
    gradient = stack_gradient_.as<float>();
    for (const Rectangle& own : stack.rectangles) {
      device_.copy(stream, shards + own.shard, own.shard_pitch, gradient + own.stack, own.stack_pitch, own.width,
                   own.rows);
    }
  }
  const bool stays = stack.is_in_place && type() == DType::fp32;
  const DevicePointer<float> update = stays ? updates_of<float>(index) + first.shard : stack_update_.as<float>();
  stack.optimizer->step(stream, steps_, matrix_values_.as<const StepValues>(), gradient, update);
  if (!stays) with_weight_type(type(), [&]<class T>(T) { place_update<T>(stack, update, updates_of<T>(index)); });
}

template <class T>
void Engine::place_update(const BlockStack& stack, DevicePointer<const float> update, DevicePointer<T> leaving) {
  Stream& stream = on(canzona::Stream::compute);
  for (const Rectangle& own : stack.rectangles) {
    if constexpr (std::is_same_v<T, float>) {
      device_.copy(stream, update + own.stack, own.stack_pitch, leaving + own.shard, own.shard_pitch, own.width,
                   own.rows);
    } else {
      launch_rows(stream, own.rows, own.width,
                  RoundRectangle<T>{own.width, (update + own.stack).raw(), own.stack_pitch, (leaving + own.shard).raw(),
                                    own.shard_pitch});
    }
  }
}

/// Where the shards of a matrix stand one after another when it is updated.
DevicePointer<float> Engine::shards_of(int index) const {
  if (is_whole()) return slot(gradient_, index);
  return gathered_[group_of_.at(index) % 2].as<float>() + staged_.at(index);
}

void Engine::update_elements(int bucket) {
  const bool moves = rules_.elementwise->moves(steps_);
  std::vector<OwnedElements>& elements = elements_[bucket];
  if (elements.empty()) return;
  // One optimizer has made all of them.
  const std::optional<std::int64_t> form = moves ? elements.front().optimizer->form(steps_) : std::nullopt;
  run(element_work_[static_cast<std::size_t>(bucket)], form, [&] {
    Stream& stream = on(canzona::Stream::compute);
    const auto values = element_values_.as<const StepValues>();
    const DevicePointer<float> update = element_update_.as<float>();
    for (const OwnedElements& own : elements) {
      own.optimizer->step(stream, steps_, values, gradient_.as<float>() + own.range.begin, update);
      if (!moves) continue;
      with_weight_type(type(), [&]<class T>(T) {
        apply_update<float, T>(stream, workload_.element_options, values, update, master(own.range.begin),
                               place<T>(weights_, own.range.begin), own.range.size());
      });
    }
  });
}

/// The update of this rank's shard: in the gradient's place where it was scattered, beside the others where this rank
/// computed all of it.
void Engine::apply(int index) {
  if (!rules_.matrix->moves(steps_)) return;
  const Range& elements = workload_.buffer.slot_of(index).elements;
  with_weight_type(type(), [&]<class T>(T) {
    const bool computed_here = redundant() || is_whole();
    const DevicePointer<T> update =
        computed_here ? updates_of<T>(index) + at_.tp * elements.size() : returned_update<T>(index);
    apply_update<T, T>(on(canzona::Stream::compute), workload_.optimizer_options, matrix_values_.as<const StepValues>(),
                       update, master(elements.begin), place<T>(weights_, elements.begin), elements.size());
  });
}

}  // namespace canzona::optimized
