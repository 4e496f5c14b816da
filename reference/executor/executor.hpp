// The reference executor: runs every rank's schedule in one process, in lockstep.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "reference/executor/virtual_ranks.hpp"

namespace canzona::reference {

/// One valid schedule for each rank of the workload's mesh.
std::vector<Schedule> make_schedules(const Workload& workload);

/// Runs a workload, which must outlive it. Each stream of each rank is an in-order queue; a step runs when its
/// dependencies have; a collective runs when every rank of its group stands at it. Throws PlanError when ranks disagree
/// on a collective, when nobody can proceed, or when a step lacks its input.
template <class Scalar>
class Executor {
 public:
  Executor(const Workload& workload, const Precision& precision, const Objective<Scalar>& objective);

  /// Runs with other schedules or another exchange, so that tests can plant faults.
  Executor(const Workload& workload, const Precision& precision, const Objective<Scalar>& objective,
           std::vector<Schedule> schedules, std::unique_ptr<Exchange<Scalar>> exchange);

  /// Lets streams advance in a random order drawn from `seed`: a result that depends on it lacks a dependency.
  void shuffle(std::uint64_t seed) { shuffle_ = seed; }

  /// Lets one stream of all ranks advance only when nothing else can: what does not wait for it runs far ahead.
  void starve(Stream stream) { starved_ = static_cast<int>(stream); }

  void run(int iterations);

  const VirtualRank<Scalar>& rank(int rank) const { return ranks_[rank]; }
  const Traffic& traffic() const { return ranks_.traffic(); }

 private:
  /// The steps of one stream, and how many of them have run over all iterations.
  struct Queue {
    std::vector<int> steps;
    std::int64_t next = 0;
  };

  std::optional<int> head(int rank, int stream) const;
  std::int64_t iteration_of(int rank, int stream) const;
  bool ready(int rank, int stream) const;
  bool advance(int rank, int stream);
  std::vector<int> group_of(int rank, int stream, const Action& action) const;
  [[noreturn]] void report_deadlock() const;

  Mesh mesh_;
  VirtualRanks<Scalar> ranks_;
  std::vector<Schedule> schedules_;
  std::vector<std::array<Queue, kStreams>> queues_;   // by rank
  std::vector<std::vector<std::int64_t>> completed_;  // by rank and step: how often it ran
  std::int64_t iterations_ = 0;
  std::uint64_t shuffle_ = 0;
  int starved_ = -1;
};

extern template class Executor<float>;
extern template class Executor<double>;

}  // namespace canzona::reference
