#include "harness/run/timing.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reference/core/overloaded.hpp"

namespace canzona::harness {
namespace {

bool is_collective(const Step& step) { return step.stream != Stream::compute; }

/// Where each collective stands in a rank's schedule.
std::map<std::string, std::size_t> collectives_of(const Schedule& schedule) {
  std::map<std::string, std::size_t> places;
  for (std::size_t index = 0; index < schedule.steps.size(); ++index) {
    if (is_collective(schedule.steps[index])) places[describe(schedule.steps[index].action)] = index;
  }
  return places;
}

/// Of a rank's steps that `chosen` picks, their seconds; the most of any rank.
template <class Chosen>
double busiest(const Timeline& timeline, int iteration, const Chosen& chosen) {
  double most = 0;
  for (std::size_t rank = 0; rank < timeline.schedules.size(); ++rank) {
    Nanoseconds sum = 0;
    const auto& steps = timeline.schedules[rank].steps;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Interval& interval = timeline.steps[rank][static_cast<std::size_t>(iteration)][index];
      if (chosen(steps[index].action)) sum += interval.end - interval.begin;
    }
    most = std::max(most, static_cast<double>(sum) * 1e-9);
  }
  return most;
}

template <class Kind>
double busiest_of(const Timeline& timeline, int iteration) {
  return busiest(timeline, iteration, [](const Action& action) { return std::holds_alternative<Kind>(action); });
}

}  // namespace

Timeline measured_timeline(const Workload& workload, const MeasuredTimes& times) {
  Timeline timeline;
  const int ranks = workload.mesh.ranks();
  double origin = HUGE_VAL;
  for (const auto& rank : times) {
    for (const auto& iteration : rank) {
      for (const optimized::StepTime& step : iteration) origin = std::min(origin, step.begin);
    }
  }
  const auto since = [origin](double seconds) { return std::llround((seconds - origin) * 1e9); };
  std::vector<std::map<std::string, std::size_t>> collectives;
  for (int rank = 0; rank < ranks; ++rank) {
    const Coordinate at = workload.mesh.coordinate(rank);
    timeline.classes.push_back({rank, 1, at.dp, at.tp});
    timeline.schedules.push_back(
        make_schedule(workload.plan, workload.model, workload.buffer, rank, workload.training.micro_batches));
    collectives.push_back(collectives_of(timeline.schedules.back()));
    auto& iterations = timeline.steps.emplace_back();
    for (const auto& iteration : times[static_cast<std::size_t>(rank)]) {
      auto& steps = iterations.emplace_back();
      for (const optimized::StepTime& step : iteration)
        steps.push_back({since(step.begin), since(step.begin), since(step.end)});
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = static_cast<std::size_t>(rank);
    for (const auto& [name, place] : collectives[own]) {
      const bool over_tp = timeline.schedules[own].steps[place].stream == Stream::tp;
      for (const int member : over_tp ? workload.mesh.tp_group(rank) : workload.mesh.dp_group(rank)) {
        const auto other = static_cast<std::size_t>(member);
        const std::size_t there = collectives[other].at(name);
        for (std::size_t iteration = 0; iteration < timeline.steps[own].size(); ++iteration) {
          Interval& interval = timeline.steps[own][iteration][place];
          interval.begin = std::max(interval.begin, timeline.steps[other][iteration][there].ready);
        }
      }
    }
  }
  return timeline;
}

const std::vector<NamedPhase>& named_phases() {
  static const std::vector<NamedPhase> phases{
      {"forward_backward", &Phases::forward_backward},
      {"exposed_reduction", &Phases::exposed_reduction},
      {"agreement", &Phases::agreement},
      {"gather_shards", &Phases::gather_shards},
      {"update", &Phases::update},
      {"scatter_updates", &Phases::scatter_updates},
      {"apply", &Phases::apply},
      {"gather_parameters", &Phases::gather_parameters},
  };
  return phases;
}

Phases phases_of(const Timeline& timeline, const Plan& plan, int iteration) {
  Phases phases;
  Nanoseconds trained = 0;
  for (std::size_t rank = 0; rank < timeline.schedules.size(); ++rank) {
    const auto& steps = timeline.schedules[rank].steps;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      if (std::holds_alternative<Backward>(steps[index].action))
        trained = std::max(trained, timeline.steps[rank][static_cast<std::size_t>(iteration)][index].end);
    }
  }
  const Nanoseconds previous = step_end(timeline, plan, iteration - 1);
  phases.forward_backward = static_cast<double>(trained - previous) * 1e-9;
  phases.exposed_reduction = step_latency(timeline, plan, iteration).forward_backward - phases.forward_backward;
  phases.agreement = busiest_of<AgreeOnGradients>(timeline, iteration);
  phases.gather_shards = busiest_of<GatherShards>(timeline, iteration);
  phases.update = busiest(timeline, iteration, [](const Action& action) {
    return std::holds_alternative<Update>(action) || std::holds_alternative<UpdateElements>(action);
  });
  phases.scatter_updates = busiest_of<ScatterUpdates>(timeline, iteration);
  phases.apply = busiest_of<Apply>(timeline, iteration);
  phases.gather_parameters = busiest_of<GatherParameters>(timeline, iteration);
  return phases;
}

double midmean_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto outside = static_cast<std::ptrdiff_t>(samples.size() / 4);
  const auto first = samples.begin() + outside, last = samples.end() - outside;
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double quantile) {
    const double place = quantile * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {at(0.5), at(0.25), at(0.75)};
}

}  // namespace canzona::harness
