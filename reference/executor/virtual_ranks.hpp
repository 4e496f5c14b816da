// What every rank holds, and what each step does to it. Who runs when stands in executor.hpp.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "reference/executor/dense.hpp"
#include "reference/executor/exchange.hpp"
#include "reference/plan/training.hpp"
#include "reference/schedule/schedule.hpp"

namespace canzona::reference {

/// One rank. Flat buffers are laid out as the workload's GradientBuffer.
template <class Scalar>
struct VirtualRank {
  Coordinate at;
  std::vector<Scalar> weights;   ///< model weights, in the model's type
  std::vector<Scalar> seen;      ///< the weights as Forward read them
  std::vector<Scalar> gradient;  ///< local, then averaged; NaN where it is another rank's after a reduce-scatter
  std::vector<Scalar> master;    ///< NaN where another rank owns the element
  std::map<int, Matrix<Scalar>> gathered;                   ///< whole gradients, from GatherShards until Update
  std::map<int, Matrix<Scalar>> updates;                    ///< whole updates, from Update until scattered or applied
  std::map<int, std::vector<Scalar>> shard_updates;         ///< this rank's slice, from ScatterUpdates until Apply
  std::map<int, std::vector<State<Scalar>>> matrix_states;  ///< by parameter, then block
  std::map<std::int64_t, State<Scalar>> element_states;     ///< by first element
  ExactSum squares;                                         ///< of the averaged gradient: this rank's part, then all
  Agreement agreement;                                      ///< of this iteration
  std::int64_t steps = 0;                                   ///< iterations that were not skipped
  std::int64_t matrix_steps = 0;                            ///< steps of the matrix optimizer on a block
};

/// All ranks of a workload. Steps that lack their input throw PlanError naming the rank and the parameter.
template <class Scalar>
class VirtualRanks {
 public:
  VirtualRanks(const Workload& workload, const Precision& precision, const Objective<Scalar>& objective,
               std::unique_ptr<Exchange<Scalar>> exchange);

  /// Runs one step on all of `group`: a collective's whole group, or the one rank of any other step.
  void perform(const Action& action, const std::vector<int>& group, std::int64_t iteration);

  const VirtualRank<Scalar>& operator[](int rank) const { return ranks_[rank]; }
  const Traffic& traffic() const { return exchange_->traffic(); }

 private:
  using Pieces = std::vector<std::vector<Range>>;  // by member of a group

  void forward(VirtualRank<Scalar>& rank, int layer);
  void backward(VirtualRank<Scalar>& rank, const Backward& step, std::int64_t iteration);
  void reduce_gradients(const std::vector<int>& group, int bucket);
  void reduce_padded(const std::vector<int>& group, const Pieces& owned, std::int64_t largest);
  void agree_on_gradients(const std::vector<int>& group, bool over_tp);
  ExactSum own_squares(const VirtualRank<Scalar>& rank) const;
  void gather_shards(const std::vector<int>& group, int micro_group);
  void update(int rank, int parameter);
  void update_elements(VirtualRank<Scalar>& rank, int bucket);
  void scatter_updates(const std::vector<int>& group, int micro_group);
  void apply(int rank, int parameter);
  void gather_parameters(const std::vector<int>& group, int bucket);
  void gather_padded(const std::vector<int>& group, const Pieces& owned, std::int64_t largest);

  template <class Place>
  void send_round(Collective collective, const std::vector<int>& group, std::size_t owner, std::int64_t count,
                  DType type, const Place& place);

  /// owned[i] = what the i-th rank of a DP group owns in a bucket.
  Pieces owned_by(const std::vector<int>& group, int bucket) const;
  const MicroGroup& members(int rank, int micro_group) const;
  void refresh_weights(VirtualRank<Scalar>& rank, Range elements);

  const Workload& workload_;
  Precision precision_;
  Objective<Scalar> objective_;
  OptimizerPair<Scalar> optimizers_;
  std::unique_ptr<Exchange<Scalar>> exchange_;
  std::vector<VirtualRank<Scalar>> ranks_;
};

extern template class VirtualRanks<float>;
extern template class VirtualRanks<double>;

}  // namespace canzona::reference
