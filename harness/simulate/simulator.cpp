#include "harness/simulate/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <queue>
#include <span>

#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

/// What tells one DP rank's schedule from another's: its elementwise and matrix share of each bucket, and its
/// micro-groups.
std::vector<std::int64_t> signature(const Plan& plan, const Model& model, const GradientBuffer& buffer,
                                    const Turns& turns, int dp_rank) {
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
      const Parameter& parameter = model.parameters[member.parameter];
      numbers.insert(numbers.end(), {buffer.slot_of(member.parameter).elements.size(), parameter.shape.cols,
                                     buffer.bucket_of(member.parameter), member.host});
      for (const Block& block : parameter.blocks) numbers.push_back(block.row_count());
      if (!turns.empty()) {
        const auto& own = turns[member.parameter];
        numbers.insert(numbers.end(), own.begin(), own.end());
      }
    }
  }
  return numbers;
}

bool is_collective(const Step& step) { return step.stream != Stream::compute; }

/// Edges (from, to) of a graph over steps, looked up by where they come from.
class Edges {
 public:
  Edges(std::size_t steps, const std::vector<std::pair<int, int>>& edges) : first_(steps + 1, 0), to_(edges.size()) {
    for (const auto& [from, to] : edges) ++first_[from + 1];
    for (std::size_t step = 0; step < steps; ++step) first_[step + 1] += first_[step];
    std::vector<int> next(first_.begin(), first_.end() - 1);
    for (const auto& [from, to] : edges) to_[next[from]++] = to;
  }
  std::span<const int> from(int step) const {
    return {to_.data() + first_[step], static_cast<std::size_t>(first_[step + 1] - first_[step])};
  }

 private:
  std::vector<int> first_;
  std::vector<int> to_;
};

/// One class's schedule with its dependencies turned round: who waits for each step.
struct Unit {
  std::vector<std::vector<Nanoseconds>> durations;  // by iteration modulo the period, then step
  Edges dependents;                                 // in the same iteration
  Edges dependents_next;                            // in the next
  std::vector<int> waits_same;                      // how many dependencies
  std::vector<int> waits_previous;
  std::vector<int> place;  // of a step among those of its stream
  std::array<int, kStreams> length;

  int steps() const { return static_cast<int>(place.size()); }
};

Unit make_unit(const Schedule& schedule, int rank, const DurationOf& duration_of, const Iterations& iterations) {
  const int count = static_cast<int>(schedule.steps.size());
  std::vector<std::vector<Nanoseconds>> durations(static_cast<std::size_t>(iterations.period));
  std::vector<int> place;
  std::vector<std::pair<int, int>> same, next;
  std::array<int, kStreams> first, last, length{};
  first.fill(-1);
  last.fill(-1);
  for (int index = 0; index < count; ++index) {
    const Step& step = schedule.steps[index];
    for (std::size_t iteration = 0; iteration < durations.size(); ++iteration) {
      const bool repeats = iteration > 0 && !std::holds_alternative<Update>(step.action);
      durations[iteration].push_back(repeats ? durations.front().back()
                                             : duration_of(step.action, rank, static_cast<std::int64_t>(iteration)));
    }
    const auto stream = static_cast<std::size_t>(step.stream);
    place.push_back(length[stream]++);
    for (const int dependency : step.waits_for) same.emplace_back(dependency, index);
    for (const int dependency : step.waits_for_previous) next.emplace_back(dependency, index);
    if (first[stream] < 0) first[stream] = index;
    if (last[stream] >= 0) same.emplace_back(last[stream], index);
    if (!iterations.overlap && index > 0) same.emplace_back(index - 1, index);
    last[stream] = index;
  }
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    if (first[stream] >= 0) next.emplace_back(last[stream], first[stream]);
  }
  if (!iterations.overlap) next.emplace_back(count - 1, 0);

  std::vector<int> waits_same(count, 0), waits_previous(count, 0);
  for (const auto& [from, to] : same) ++waits_same[to];
  for (const auto& [from, to] : next) ++waits_previous[to];
  return {std::move(durations),
          Edges(count, same),
          Edges(count, next),
          std::move(waits_same),
          std::move(waits_previous),
          std::move(place),
          length};
}

/// The run itself: steps become ready, collectives gather their ranks, ends are events in a queue.
class Simulation {
 public:
  Simulation(Timeline& timeline, std::vector<Unit> units, int iterations)
      : timeline_(timeline), units_(std::move(units)), iterations_(iterations) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const auto steps = static_cast<std::size_t>(units_[unit].steps());
      timeline_.steps.emplace_back(iterations, std::vector<Interval>(steps));
      auto& remaining = remaining_.emplace_back();
      for (int iteration = 0; iteration < iterations; ++iteration) {
        auto& counts = remaining.emplace_back(units_[unit].waits_same);
        for (std::size_t step = 0; iteration > 0 && step < steps; ++step)
          counts[step] += units_[unit].waits_previous[step];
      }
      total_ += static_cast<std::int64_t>(steps) * iterations;
      for (const Stream stream : {Stream::dp, Stream::tp}) {
        Group& group = group_of(static_cast<int>(unit), stream);
        ++group.members;
        group.length = std::max(group.length, units_[unit].length[static_cast<std::size_t>(stream)]);
        group.gatherings.resize(static_cast<std::size_t>(group.length) * iterations);
      }
    }
  }

  void run() {
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      for (int step = 0; step < units_[unit].steps(); ++step) {
        if (remaining_[unit][0][step] == 0) become_ready({unit, 0, step});
      }
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.gathering == nullptr) {
        finish(event.place, event.end);
      } else {
        for (const Place& place : event.gathering->present) finish(place, event.end);
      }
    }
    if (finished_ != total_) throw PlanError(fmt::format("{} of {} steps can never run", total_ - finished_, total_));
  }

 private:
  struct Place {
    int unit;
    int iteration;
    int step;
  };
  struct Gathering {
    std::vector<Place> present;
    Nanoseconds last = 0;
  };
  /// The classes that communicate with each other on a stream, and their collectives by iteration and place on it.
  struct Group {
    int members = 0;
    int length = 0;
    std::vector<Gathering> gatherings;
  };
  /// The end of a step, or of a collective on all of its ranks.
  struct Event {
    Nanoseconds end;
    std::int64_t number;  // of its making: equal times keep one order
    Place place;
    const Gathering* gathering;                 // null for a step of one rank
    bool operator<(const Event& other) const {  // the queue's top is the greatest
      return end != other.end ? end > other.end : number > other.number;
    }
  };

  /// The group with which a class communicates on a stream.
  Group& group_of(int unit, Stream stream) {
    const RankClass& own = timeline_.classes[unit];
    auto& groups = stream == Stream::dp ? dp_groups_ : tp_groups_;
    const std::size_t index = stream == Stream::dp ? own.tp_class : own.dp_class;
    if (index >= groups.size()) groups.resize(index + 1);
    return groups[index];
  }

  Nanoseconds duration(const Place& place) const {
    const auto& durations = units_[place.unit].durations;
    return durations[static_cast<std::size_t>(place.iteration) % durations.size()][place.step];
  }

  Interval& at(const Place& place) { return timeline_.steps[place.unit][place.iteration][place.step]; }

  void become_ready(const Place& place) {
    const Step& step = timeline_.schedules[place.unit].steps[place.step];
    const Unit& unit = units_[place.unit];
    if (!is_collective(step)) {
      at(place).begin = at(place).ready;
      events_.push({at(place).ready + duration(place), number_++, place, nullptr});
      return;
    }
    Group& group = group_of(place.unit, step.stream);
    Gathering& gathering = group.gatherings[place.iteration * group.length + unit.place[place.step]];
    gathering.present.push_back(place);
    gathering.last = std::max(gathering.last, at(place).ready);
    if (static_cast<int>(gathering.present.size()) < group.members) return;
    for (const Place& member : gathering.present) at(member).begin = gathering.last;
    events_.push({gathering.last + duration(place), number_++, place, &gathering});
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
    for (const int step : unit.dependents.from(place.step)) release(place.iteration, step);
    if (place.iteration + 1 == iterations_) return;
    for (const int step : unit.dependents_next.from(place.step)) release(place.iteration + 1, step);
  }

  Timeline& timeline_;
  std::vector<Unit> units_;
  int iterations_;
  std::vector<std::vector<std::vector<int>>> remaining_;  // by unit, iteration, step
  std::vector<Group> dp_groups_;                          // by TP class
  std::vector<Group> tp_groups_;                          // by DP class
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
  return updates_weights(action) || std::holds_alternative<AgreeOnGradients>(action) ||
         std::holds_alternative<Update>(action) || std::holds_alternative<GatherShards>(action) ||
         std::holds_alternative<ScatterUpdates>(action);
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

std::vector<RankClass> rank_classes(const Plan& plan, const Model& model, const GradientBuffer& buffer,
                                    const Turns& turns, bool ranks_differ) {
  const bool replicated = plan.replicated() && !ranks_differ;
  std::map<std::vector<std::int64_t>, int> known;
  std::vector<int> representatives;
  std::vector<int> counts;
  for (int dp_rank = 0; dp_rank < (replicated ? 1 : plan.mesh.dp); ++dp_rank) {
    std::vector<std::int64_t> own = signature(plan, model, buffer, turns, dp_rank);
    if (ranks_differ) own.push_back(dp_rank);
    const auto [place, fresh] = known.try_emplace(std::move(own), static_cast<int>(counts.size()));
    if (fresh) {
      representatives.push_back(dp_rank);
      counts.push_back(0);
    }
    counts[place->second] += replicated ? plan.mesh.dp : 1;
  }
  const bool redundant = plan.matrix_update == MatrixUpdate::redundant && !ranks_differ;
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
                  const Iterations& iterations) {
  Timeline timeline;
  timeline.classes = rank_classes(plan, model, buffer, iterations.turns, iterations.ranks_differ);
  std::vector<Unit> units;
  for (const RankClass& own : timeline.classes) {
    timeline.schedules.push_back(make_schedule(plan, model, buffer, own.representative, iterations.micro_batches));
    units.push_back(make_unit(timeline.schedules.back(), own.representative, duration_of, iterations));
  }
  Simulation(timeline, std::move(units), iterations.count).run();
  return timeline;
}

Nanoseconds step_end(const Timeline& timeline, const Plan& plan, int iteration) {
  const bool blocks = plan.parameter_gather == ParameterGather::after_step;
  const auto ends_step = [&](const Action& action) {
    return updates_weights(action) || (blocks && std::holds_alternative<GatherParameters>(action));
  };
  return latest(timeline, iteration, ends_step, 0);
}

StepLatency step_latency(const Timeline& timeline, const Plan& plan, int iteration) {
  const bool blocks = plan.parameter_gather == ParameterGather::after_step;
  const auto is_reduction = [](const Action& action) { return std::holds_alternative<ReduceGradients>(action); };
  const Nanoseconds reduced = latest(timeline, iteration, is_reduction, 0);
  const Nanoseconds stepped = std::max(reduced, step_end(timeline, plan, iteration));
  const Nanoseconds previous = step_end(timeline, plan, iteration - 1);

  double compute = 0, communication = 0, ranks = 0;
  for (std::size_t unit = 0; unit < timeline.schedules.size(); ++unit) {
    std::vector<Span> computing, busy;
    const auto& steps = timeline.schedules[unit].steps;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Interval& interval = timeline.steps[unit][iteration][index];
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

StepLatency mean(const std::vector<StepLatency>& latencies, const std::vector<double>& times) {
  constexpr double StepLatency::*kParts[] = {
      &StepLatency::forward_backward, &StepLatency::optimizer_step,        &StepLatency::iteration,
      &StepLatency::compute,          &StepLatency::exposed_communication, &StepLatency::waiting};
  StepLatency mean;
  for (const auto part : kParts) {
    for (std::size_t index = 0; index < latencies.size(); ++index) mean.*part += times[index] * latencies[index].*part;
    mean.*part /= std::accumulate(times.begin(), times.end(), 0.0);
  }
  return mean;
}

}  // namespace canzona::harness
