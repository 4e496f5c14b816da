// Data movement between virtual ranks, counted in bytes as it happens.
#pragma once

#include <algorithm>
#include <vector>

#include "reference/core/exact_sum.hpp"
#include "reference/model/shard.hpp"
#include "reference/plan/traffic.hpp"

namespace canzona::reference {

/// The three movements that every collective is made of. Virtual so that tests can plant faults in them.
template <class Scalar>
class Exchange {
 public:
  explicit Exchange(int ranks) : traffic_(ranks) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  /// result[i] = average of contributions[·][i] at `group[receiver]`: everyone sends in `type`, the receiver adds in
  /// rank order and rounds the average to `type`. `result` may be the receiver's own contribution.
  virtual void reduce(const std::vector<int>& group, const std::vector<const Scalar*>& contributions,
                      std::int64_t count, std::size_t receiver, DType type, Scalar* result) {
    for (std::size_t member = 0; member < group.size(); ++member) {
      if (member != receiver) traffic_.add(Collective::reduce_gradients, group[member], count * bytes_of(type));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      Scalar sum = 0;
      for (const Scalar* contribution : contributions) sum += round_to(type, contribution[i]);
      result[i] = round_to(type, sum / static_cast<Scalar>(contributions.size()));
    }
  }

  /// Copies `count` elements, exact in `type`, from rank `from` to rank `to`; free where they are one.
  virtual void send(Collective collective, int from, int to, const Scalar* source, std::int64_t count, DType type,
                    Scalar* target) {
    if (from != to) traffic_.add(collective, from, count * bytes_of(type));
    if (source != target) std::copy_n(source, count, target);
  }

  /// `sum` as rank `to` receives it from rank `from`.
  virtual ExactSum send(int from, int to, const ExactSum& sum) {
    if (from != to) traffic_.add(Collective::agree_on_gradients, from, ExactSum::bytes());
    return sum;
  }

  /// Puts rank `tp_rank`'s shard into its place in the whole matrix.
  virtual void assemble(const Scalar* shard, const Parameter& parameter, int tp, int tp_rank, Matrix<Scalar>& whole) {
    place_shard(shard, parameter, tp, tp_rank, whole);
  }

  const Traffic& traffic() const { return traffic_; }

 private:
  Traffic traffic_;
};

}  // namespace canzona::reference
