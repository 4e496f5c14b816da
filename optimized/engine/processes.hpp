// The ranks of a mesh as processes of one MPI job, one machine or many.
#pragma once

#include <memory>
#include <string>

#include "optimized/engine/rank.hpp"

namespace canzona::optimized {

/// Whether this process was started as one of several, by mpirun or srun.
bool is_one_of_several_processes();

/// This process among those of its job. One at a time; MPI is left when it goes.
class Processes {
 public:
  /// Whoever waits for another process beyond the deadline gives up; before ranks run, where MPI itself waits, beyond
  /// half a minute at least, and ends with `exit_code`. Throws Error where MPI cannot be called from several threads.
  Processes(double deadline_seconds, int exit_code);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Every process's text, by rank.
  std::vector<std::string> all_gather(const std::string& own) { return start_->all_gather(own); }

  /// Runs body(rank) for this process's rank of the mesh, which has as many ranks as there are processes. A rank that
  /// throws, or waits for another beyond the deadline, says so on standard error, with where others stand, and ends the
  /// job with the exit code.
  void run(const Mesh& mesh, const ChosenBackend& backend, const RankBody& body);

 private:
  double deadline_seconds_;
  int exit_code_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<HostCommunicator> start_;  // for what has to be agreed before there is a mesh
};

}  // namespace canzona::optimized
