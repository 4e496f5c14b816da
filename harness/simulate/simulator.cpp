#include "harness/simulate/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <queue>

#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

/// What tells one DP rank's schedule from another's: its elementwise and matrix share of each bucket, and its
/// micro-groups.
std::vector<std::int64_t> signature(const Plan& plan, const Model& model, const GradientBuffer& buffer, int dp_rank) {
  std::vector<std::int64_t> numbers;
  for (std::size_t index = 0; index < buffer.buckets.size(); ++index) {
    const Bucket& bucket = buffer.buckets[index];
    for (const Range& owned : owned_ranges(plan, buffer, static_cast<int>(index), dp_rank)) {
      for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
        const std::int64_t elements = intersection(buffer.slots[slot].elements, owned).size();
        if (elements > 0 && model.parameters[buffer.slots[slot].parameter].routing == Routing::elementwise) {
          numbers.insert(numbers.end(), {static_cast<std::int64_t>(index), elements});
        }
      }
    }
  }
  for (const MicroGroup& group : plan.groups_of(dp_rank)) {
    numbers.push_back(-1);
    for (const HostedMatrix& member : group.members) {
      const Shape shape = model.parameters[member.parameter].shape;
      numbers.insert(numbers.end(), {shape.rows, shape.cols, buffer.bucket_of(member.parameter), member.host});
    }
  }
  return numbers;
}

bool is_collective(const Step& step) { return step.stream != Stream::compute; }

/// One class's schedule with its dependencies turned round: who waits for each step.
struct Unit {
  std::vector<Nanoseconds> durations;
  std::vector<std::vector<int>> dependents;       // in the same iteration
  std::vector<std::vector<int>> dependents_next;  // in the next
  std::vector<int> waits_same;                    // how many dependencies
  std::vector<int> waits_previous;
  std::vector<int> place;  // of a collective among those of its stream
  std::array<int, kStreams> stream_length{};
};

Unit make_unit(const Schedule& schedule, int rank, const DurationOf& duration_of, bool overlap) {
  const std::size_t count = schedule.steps.size();
  Unit unit;
  unit.dependents.resize(count);
  unit.dependents_next.resize(count);
  unit.waits_same.assign(count, 0);
  unit.waits_previous.assign(count, 0);
  const auto wait_same = [&](int step, int dependency) {
    unit.dependents[dependency].push_back(step);
    ++unit.waits_same[step];
  };
  const auto wait_previous = [&](int step, int dependency) {
    unit.dependents_next[dependency].push_back(step);
    ++unit.waits_previous[step];
  };
  std::array<int, kStreams> first, last;
  first.fill(-1);
  last.fill(-1);
  for (int index = 0; index < static_cast<int>(count); ++index) {
    const Step& step = schedule.steps[index];
    unit.durations.push_back(duration_of(step.action, rank));
    const auto stream = static_cast<std::size_t>(step.stream);
    unit.place.push_back(unit.stream_length[stream]++);
    for (const int dependency : step.waits_for) wait_same(index, dependency);
    for (const int dependency : step.waits_for_previous) wait_previous(index, dependency);
    if (first[stream] < 0) first[stream] = index;
    if (last[stream] >= 0) wait_same(index, last[stream]);
    if (!overlap && index > 0) wait_same(index, index - 1);
    last[stream] = index;
  }
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    if (first[stream] >= 0) wait_previous(first[stream], last[stream]);
  }
  if (!overlap) wait_previous(0, static_cast<int>(count) - 1);
  return unit;
}

/// The run itself: steps become ready, collectives gather their ranks, ends are events in a queue.
class Simulation {
 public:
  Simulation(Timeline& timeline, std::vector<Unit> units, int iterations)
      : timeline_(timeline), units_(std::move(units)), iterations_(iterations) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const std::size_t steps = units_[unit].durations.size();
      timeline_.steps.emplace_back(iterations, std::vector<Interval>(steps));
      auto& remaining = remaining_.emplace_back();
      for (int iteration = 0; iteration < iterations; ++iteration) {
        auto& counts = remaining.emplace_back(units_[unit].waits_same);
        for (std::size_t step = 0; iteration > 0 && step < steps; ++step)
          counts[step] += units_[unit].waits_previous[step];
      }
      total_ += static_cast<std::int64_t>(steps) * iterations;
      const RankClass& own = timeline_.classes[unit];
      ++members_[{Stream::dp, own.tp_class}];
      ++members_[{Stream::tp, own.dp_class}];
    }
  }

  void run() {
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      for (int step = 0; step < static_cast<int>(units_[unit].durations.size()); ++step) {
        if (remaining_[unit][0][step] == 0) become_ready({unit, 0, step});
      }
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      for (const Place& place : event.steps) finish(place, event.end);
    }
    if (finished_ != total_) throw PlanError(fmt::format("{} of {} steps can never run", total_ - finished_, total_));
  }

 private:
  struct Place {
    int unit;
    int iteration;
    int step;
  };
  struct Event {
    Nanoseconds end;
    std::int64_t number;  // of its making: equal times keep one order
    std::vector<Place> steps;
    bool operator<(const Event& other) const {  // the queue's top is the greatest
      return end != other.end ? end > other.end : number > other.number;
    }
  };
  /// A collective is known by its stream, its group, its iteration and its place on the stream.
  struct Gathering {
    std::vector<Place> present;
    Nanoseconds last = 0;
  };

  Interval& at(const Place& place) { return timeline_.steps[place.unit][place.iteration][place.step]; }

  void become_ready(const Place& place) {
    const Step& step = timeline_.schedules[place.unit].steps[place.step];
    const Unit& unit = units_[place.unit];
    if (!is_collective(step)) {
      at(place).begin = at(place).ready;
      events_.push({at(place).ready + unit.durations[place.step], number_++, {place}});
      return;
    }
    const RankClass& own = timeline_.classes[place.unit];
    const int group = step.stream == Stream::dp ? own.tp_class : own.dp_class;
    Gathering& gathering = gatherings_[{static_cast<int>(step.stream), group, place.iteration, unit.place[place.step]}];
    gathering.present.push_back(place);
    gathering.last = std::max(gathering.last, at(place).ready);
    if (static_cast<int>(gathering.present.size()) < members_.at({step.stream, group})) return;
    for (const Place& member : gathering.present) at(member).begin = gathering.last;
    events_.push({gathering.last + unit.durations[place.step], number_++, std::move(gathering.present)});
  }

  void finish(const Place& place, Nanoseconds end) {
    at(place).end = end;
    ++finished_;
    const Unit& unit = units_[place.unit];
    const auto release = [&](int iteration, int step) {
      const Place waiting{place.unit, iteration, step};
      at(waiting).ready = std::max(at(waiting).ready, end);
      if (--remaining_[place.unit][iteration][step] == 0) become_ready(waiting);
    };
    for (const int step : unit.dependents[place.step]) release(place.iteration, step);
    if (place.iteration + 1 == iterations_) return;
    for (const int step : unit.dependents_next[place.step]) release(place.iteration + 1, step);
  }

  Timeline& timeline_;
  std::vector<Unit> units_;
  int iterations_;
  std::vector<std::vector<std::vector<int>>> remaining_;  // by unit, iteration, step
  std::map<std::pair<Stream, int>, int> members_;         // classes in a group
  std::map<std::array<int, 4>, Gathering> gatherings_;
  std::priority_queue<Event> events_;
  std::int64_t number_ = 0;
  std::int64_t finished_ = 0;
  std::int64_t total_ = 0;
};

bool updates_weights(const Action& action) {
  return std::holds_alternative<Apply>(action) || std::holds_alternative<UpdateElements>(action);
}

/// A step of the optimizer, as against one of training.
bool is_optimizer(const Action& action) {
  return updates_weights(action) || std::holds_alternative<Update>(action) ||
         std::holds_alternative<GatherShards>(action) || std::holds_alternative<ScatterUpdates>(action);
}

/// The end of the latest step of an iteration that `chosen` picks; `otherwise` if there is none.
template <class Chosen>
Nanoseconds latest(const Timeline& timeline, int iteration, const Chosen& chosen, Nanoseconds otherwise) {
  Nanoseconds end = otherwise;
  for (std::size_t unit = 0; unit < timeline.schedules.size(); ++unit) {
    const auto& steps = timeline.schedules[unit].steps;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      if (chosen(steps[step].action)) end = std::max(end, timeline.steps[unit][iteration][step].end);
    }
  }
  return end;
}

using Span = std::pair<Nanoseconds, Nanoseconds>;

/// The length of the union of spans; sorts them.
Nanoseconds covered(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  Nanoseconds length = 0;
  Nanoseconds reached = INT64_MIN;
  for (const auto& [begin, end] : spans) {
    if (end <= reached) continue;
    length += end - std::max(begin, reached);
    reached = end;
  }
  return length;
}

}  // namespace

std::vector<RankClass> rank_classes(const Plan& plan, const Model& model, const GradientBuffer& buffer) {
  std::map<std::vector<std::int64_t>, int> known;
  std::vector<int> representatives;
  std::vector<int> counts;
  for (int dp_rank = 0; dp_rank < (plan.replicated() ? 1 : plan.mesh.dp); ++dp_rank) {
    const auto [place, fresh] =
        known.try_emplace(signature(plan, model, buffer, dp_rank), static_cast<int>(counts.size()));
    if (fresh) {
      representatives.push_back(dp_rank);
      counts.push_back(0);
    }
    counts[place->second] += plan.replicated() ? plan.mesh.dp : 1;
  }
  const bool redundant = plan.matrix_update == MatrixUpdate::redundant;
  std::vector<RankClass> classes;
  for (std::size_t dp_class = 0; dp_class < counts.size(); ++dp_class) {
    for (int tp_class = 0; tp_class < (redundant ? 1 : plan.mesh.tp); ++tp_class) {
      classes.push_back({plan.mesh.rank({representatives[dp_class], tp_class, 0}),
                         counts[dp_class] * (redundant ? plan.mesh.tp : 1), static_cast<int>(dp_class), tp_class});
    }
  }
  return classes;
}

Timeline simulate(const Plan& plan, const Model& model, const GradientBuffer& buffer, const DurationOf& duration_of,
                  int iterations, bool overlap) {
  Timeline timeline;
  timeline.classes = rank_classes(plan, model, buffer);
  std::vector<Unit> units;
  for (const RankClass& own : timeline.classes) {
    timeline.schedules.push_back(make_schedule(plan, model, buffer, own.representative));
    units.push_back(make_unit(timeline.schedules.back(), own.representative, duration_of, overlap));
  }
  Simulation(timeline, std::move(units), iterations).run();
  return timeline;
}

StepLatency step_latency(const Timeline& timeline, const Plan& plan) {
  const int last = static_cast<int>(timeline.steps.front().size()) - 1;
  const bool blocks = plan.parameter_gather == ParameterGather::after_step;
  const auto is_reduction = [](const Action& action) { return std::holds_alternative<ReduceGradients>(action); };
  const auto ends_step = [&](const Action& action) {
    return updates_weights(action) || (blocks && std::holds_alternative<GatherParameters>(action));
  };
  const Nanoseconds reduced = latest(timeline, last, is_reduction, 0);
  const Nanoseconds stepped = latest(timeline, last, ends_step, reduced);
  const Nanoseconds previous = latest(timeline, last - 1, ends_step, 0);

  double compute = 0, communication = 0, ranks = 0;
  for (std::size_t unit = 0; unit < timeline.schedules.size(); ++unit) {
    std::vector<Span> computing, busy;
    const auto& steps = timeline.schedules[unit].steps;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Interval& interval = timeline.steps[unit][last][index];
      const Span span{std::max(interval.begin, reduced), std::min(interval.end, stepped)};
      const bool counts = is_optimizer(steps[index].action) ||
                          (blocks && std::holds_alternative<GatherParameters>(steps[index].action));
      if (!counts || span.second <= span.first) continue;
      busy.push_back(span);
      if (steps[index].stream == Stream::compute) computing.push_back(span);
    }
    const double weight = timeline.classes[unit].count;
    const auto own = static_cast<double>(covered(computing));
    compute += weight * own;
    communication += weight * (static_cast<double>(covered(busy)) - own);
    ranks += weight;
  }
  StepLatency latency;
  latency.forward_backward = static_cast<double>(reduced - previous) * 1e-9;
  latency.optimizer_step = static_cast<double>(stepped - reduced) * 1e-9;
  latency.iteration = static_cast<double>(stepped - previous) * 1e-9;
  latency.compute = compute / ranks * 1e-9;
  latency.exposed_communication = communication / ranks * 1e-9;
  latency.waiting = std::max(0.0, latency.optimizer_step - latency.compute - latency.exposed_communication);
  return latency;
}

}  // namespace canzona::harness
