#include "optimized/engine/engine.hpp"

#include <algorithm>
#include <exception>
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

  CANZONA_KERNEL void operator()(std::int64_t i) {
    gradient[i] = ((first ? 0.0f : gradient[i]) + (noise[i] + curvature * weights[i])) / divisor;
  }
};

template <class T>
struct Fill {
  T value;
  T* values;
  CANZONA_KERNEL void operator()(std::int64_t i) { values[i] = value; }
};

}  // namespace

Engine::~Engine() = default;

bool Engine::computes(const HostedMatrix& member) const { return redundant() || member.host == at_.tp; }

DevicePointer<float> Engine::slot(const Buffer& buffer, int parameter) const {
  return buffer.as<float>() + workload_.buffer.slot_of(parameter).elements.begin;
}

/// The rank's shard of a parameter, for products.
MatrixIn Engine::weights_of(int index) const {
  const Shape shard = shard_shape(parameter(index), workload_.mesh.tp);
  return {slot(weights_, index), shard.rows, shard.cols};
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
    steps_ += agreement_.skip ? 0 : 1;
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

std::vector<float> Engine::weights() {
  std::vector<float> weights(static_cast<std::size_t>(workload_.buffer.numel()));
  Stream& stream = on(canzona::Stream::compute);
  device_.copy(stream, weights_.as<float>().raw(), weights.data(), weights.size() * sizeof(float));
  stream.synchronize();
  return weights;
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
    launch(stream, own.elements.size(),
           AddGradient{sample == 0, static_cast<float>(reference::Objective<float>::kCurvature),
                       last ? static_cast<float>(training.batch) : 1.0f, slot(noise, own.parameter).raw(),
                       slot(weights_, own.parameter).raw(), slot(gradient_, own.parameter).raw()});
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

/// Brings the shards' rows together, block by block, updates stacks of blocks, and leaves the update cut into shards.
void Engine::update(int index) {
  Stream& stream = on(canzona::Stream::compute);
  const DevicePointer<float> shards = shards_of(index);
  const DevicePointer<float> leaving = updates_of(index);
  for (const BlockStack& stack : stacks_.at(index)) {
    const Rectangle& first = stack.rectangles.front();
    DevicePointer<float> gradient = shards + first.shard;
    DevicePointer<float> update = leaving + first.shard;
    if (!stack.is_in_place) {
      gradient = stack_gradient_.as<float>();
      update = stack_update_.as<float>();
      for (const Rectangle& own : stack.rectangles) {
        device_.copy(stream, shards + own.shard, own.shard_pitch, gradient + own.stack, own.stack_pitch, own.width,
                     own.rows);
      }
    }
    stack.optimizer->step(stream, static_cast<float>(agreement_.factor), gradient, update);
    if (!stack.is_in_place) {
      for (const Rectangle& own : stack.rectangles) {
        device_.copy(stream, update + own.stack, own.stack_pitch, leaving + own.shard, own.shard_pitch, own.width,
                     own.rows);
      }
    }
    matrix_steps_ += stack.count;
  }
}

/// Where the shards of a matrix stand one after another when it is updated.
DevicePointer<float> Engine::shards_of(int index) const {
  if (is_whole()) return slot(gradient_, index);
  return gathered_[group_of_.at(index) % 2].as<float>() + staged_.at(index);
}

/// Where its update does.
DevicePointer<float> Engine::updates_of(int index) const {
  return updates_[group_of_.at(index) % 2].as<float>() + staged_.at(index);
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

/// The update of this rank's shard: in the gradient's place where it was scattered, beside the others where this rank
/// computed all of it.
void Engine::apply(int index) {
  if (!rules_.matrix->moves(steps_)) return;
  const std::int64_t count = workload_.buffer.slot_of(index).elements.size();
  const bool computed_here = redundant() || is_whole();
  const DevicePointer<float> update = computed_here ? updates_of(index) + at_.tp * count : slot(gradient_, index);
  apply_update(on(canzona::Stream::compute), workload_.optimizer_options, update, slot(master_, index),
               slot(weights_, index), count);
}

}  // namespace canzona::optimized
