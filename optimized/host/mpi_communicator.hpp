// Ranks that are processes of one MPI job.
#pragma once

#include <mpi.h>

#include <vector>

#include "optimized/device/watch.hpp"
#include "optimized/host/host_communicator.hpp"

namespace canzona::optimized {

/// The calling process in a group. Pieces travel as messages between pairs; whoever waits polls, so that they move
/// without the help of anybody else.
class MpiCommunicator final : public HostCommunicator {
 public:
  /// Takes the communicator and frees it; its members stand in their order.
  MpiCommunicator(MPI_Comm group, Watch watch);
  ~MpiCommunicator() override;

  int size() const override { return size_; }
  int rank() const override { return rank_; }
  void exchange(const Transfer& transfer) override;

 private:
  void begin_receives(const Transfer& transfer);
  void begin_sends(const Transfer& transfer);
  void copy_own(const Transfer& transfer) const;
  void wait();
  [[noreturn]] void give_up();
  void check_arrivals() const;

  MPI_Comm group_;
  Watch watch_;
  int size_ = 0;
  int rank_ = 0;
  // Of the exchange under way; they keep their memory between exchanges.
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> members_;   // by request
  std::vector<int> expected_;  // bytes by request; −1 of a send
};

}  // namespace canzona::optimized
