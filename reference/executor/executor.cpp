#include "reference/executor/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "reference/core/error.hpp"

namespace canzona::reference {
namespace {

bool is_collective(const Action& action) {
  return std::holds_alternative<ReduceGradients>(action) || std::holds_alternative<AgreeOnGradients>(action) ||
         std::holds_alternative<GatherShards>(action) || std::holds_alternative<ScatterUpdates>(action) ||
         std::holds_alternative<GatherParameters>(action);
}

}  // namespace

std::vector<Schedule> make_schedules(const Workload& workload) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < workload.mesh.ranks(); ++rank) {
    schedules.push_back(
        make_schedule(workload.plan, workload.model, workload.buffer, rank, workload.training.micro_batches));
    validate(schedules.back());
  }
  return schedules;
}

template <class Scalar>
Executor<Scalar>::Executor(const Workload& workload, const Precision& precision, const Objective<Scalar>& objective)
    : Executor(workload, precision, objective, make_schedules(workload),
               std::make_unique<Exchange<Scalar>>(workload.mesh.ranks())) {}

template <class Scalar>
Executor<Scalar>::Executor(const Workload& workload, const Precision& precision, const Objective<Scalar>& objective,
                           std::vector<Schedule> schedules, std::unique_ptr<Exchange<Scalar>> exchange)
    : mesh_(workload.mesh),
      ranks_(workload, precision, objective, std::move(exchange)),
      schedules_(std::move(schedules)) {
  for (const Schedule& schedule : schedules_) {
    auto& queues = queues_.emplace_back();
    for (std::size_t step = 0; step < schedule.steps.size(); ++step) {
      queues[static_cast<std::size_t>(schedule.steps[step].stream)].steps.push_back(static_cast<int>(step));
    }
    completed_.emplace_back(schedule.steps.size(), 0);
  }
}

template <class Scalar>
void Executor<Scalar>::run(int iterations) {
  iterations_ += iterations;
  std::vector<std::pair<int, int>> order;
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    for (int stream = 0; stream < kStreams; ++stream) order.emplace_back(rank, stream);
  }
  std::mt19937_64 generator(shuffle_);
  for (bool finished = false; !finished;) {
    bool progressed = false;
    bool skipped = false;
    finished = true;
    if (shuffle_ != 0) std::shuffle(order.begin(), order.end(), generator);
    for (const auto& [rank, stream] : order) {
      if (!head(rank, stream)) continue;
      finished = false;
      if (stream == starved_) continue;
      if (shuffle_ != 0 && generator() % 2 == 0) {
        skipped = true;
      } else if (advance(rank, stream)) {
        progressed = true;
      }
    }
    // A starved stream takes one step, and then everybody else goes first again.
    for (auto place = order.begin(); !progressed && !skipped && starved_ >= 0 && place != order.end(); ++place)
      progressed = place->second == starved_ && head(place->first, starved_) && advance(place->first, starved_);
    if (!finished && !progressed && !skipped) report_deadlock();
  }
}

/// The next step of a stream, none when the stream has finished.
template <class Scalar>
std::optional<int> Executor<Scalar>::head(int rank, int stream) const {
  const Queue& queue = queues_[rank][stream];
  const auto length = static_cast<std::int64_t>(queue.steps.size());
  if (queue.next >= length * iterations_) return std::nullopt;
  return queue.steps[queue.next % length];
}

template <class Scalar>
std::int64_t Executor<Scalar>::iteration_of(int rank, int stream) const {
  const Queue& queue = queues_[rank][stream];
  return queue.next / static_cast<std::int64_t>(queue.steps.size());
}

template <class Scalar>
bool Executor<Scalar>::ready(int rank, int stream) const {
  const std::optional<int> step = head(rank, stream);
  if (!step) return false;
  const std::int64_t iteration = iteration_of(rank, stream);
  const auto ran = [&](std::int64_t times) {
    return [this, rank, times](int dependency) { return completed_[rank][dependency] >= times; };
  };
  const Step& what = schedules_[rank].steps[*step];
  return std::all_of(what.waits_for.begin(), what.waits_for.end(), ran(iteration + 1)) &&
         std::all_of(what.waits_for_previous.begin(), what.waits_for_previous.end(), ran(iteration));
}

/// Runs the next step of a stream, or the collective at which it stands; false when it has to wait.
template <class Scalar>
bool Executor<Scalar>::advance(int rank, int stream) {
  if (!ready(rank, stream)) return false;
  const Action action = schedules_[rank].steps[*head(rank, stream)].action;
  const std::vector<int> group = group_of(rank, stream, action);
  for (const int member : group) {
    if (!ready(member, stream)) return false;
  }
  for (const int member : group) {
    const Action& other = schedules_[member].steps[*head(member, stream)].action;
    if (other != action || iteration_of(member, stream) != iteration_of(rank, stream)) {
      throw PlanError(
          fmt::format("rank {} stands at {}, rank {} at {}", rank, describe(action), member, describe(other)));
    }
  }
  ranks_.perform(action, group, iteration_of(rank, stream));
  for (const int member : group) {
    ++completed_[member][*head(member, stream)];
    ++queues_[member][stream].next;
  }
  return true;
}

/// The ranks that run an action together.
template <class Scalar>
std::vector<int> Executor<Scalar>::group_of(int rank, int stream, const Action& action) const {
  if (!is_collective(action)) return {rank};
  return static_cast<Stream>(stream) == Stream::dp ? mesh_.dp_group(rank) : mesh_.tp_group(rank);
}

template <class Scalar>
void Executor<Scalar>::report_deadlock() const {
  std::string where;
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    for (int stream = 0; stream < kStreams; ++stream) {
      if (const auto step = head(rank, stream)) {
        where += fmt::format("{}rank {} at {}", where.empty() ? "" : ", ", rank,
                             describe(schedules_[rank].steps[*step].action));
      }
    }
  }
  throw PlanError("nobody can proceed: " + where);
}

template class Executor<float>;
template class Executor<double>;

}  // namespace canzona::reference
