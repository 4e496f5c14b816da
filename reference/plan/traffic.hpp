// How many bytes each rank sends in one iteration; those of the optimizer in closed form. The reference executor counts
// the same bytes as it moves them, and the two must be equal.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "reference/core/dtype.hpp"
#include "reference/plan/plan.hpp"

namespace canzona {

/// Communication, by the step that does it. All but the last is the optimizer's, and a plan's matter.
enum class Collective {
  reduce_gradients,
  agree_on_gradients,
  gather_shards,
  scatter_updates,
  gather_parameters,
  reduce_activations,  ///< over tensor parallelism, in forward and backward
};
inline constexpr std::array kOptimizerCollectives{Collective::reduce_gradients, Collective::agree_on_gradients,
                                                  Collective::gather_shards, Collective::scatter_updates,
                                                  Collective::gather_parameters};
inline constexpr std::array kCollectives{Collective::reduce_gradients,  Collective::agree_on_gradients,
                                         Collective::gather_shards,     Collective::scatter_updates,
                                         Collective::gather_parameters, Collective::reduce_activations};
std::string_view name_of(Collective collective);

/// Element types on the wire.
struct WireTypes {
  DType gradient = DType::fp32;
  DType update = DType::bf16;
  DType parameter = DType::bf16;
};

/// Bytes sent by each rank, by collective.
class Traffic {
 public:
  explicit Traffic(int ranks);

  void add(Collective collective, int rank, std::int64_t bytes) { sent_[index(collective)][rank] += bytes; }
  const std::vector<std::int64_t>& sent(Collective collective) const { return sent_[index(collective)]; }
  std::int64_t busiest(Collective collective) const;

  friend bool operator==(const Traffic&, const Traffic&) = default;

 private:
  static std::size_t index(Collective collective) { return static_cast<std::size_t>(collective); }
  std::array<std::vector<std::int64_t>, kCollectives.size()> sent_;
};

/// Where an all-reduce of `elements` over `ranks` cuts them: rank r reduces, then sends to all, the r-th range.
std::vector<Range> even_ranges(Range elements, int ranks);

// clang-format off
/// The closed form of the optimizer's. Over R ranks, with s_r the share of rank r in a bucket of B elements:
///   reduce-scatter     B − s_r              (each other rank's share to that rank)
///   all-gather         B − s_{r+1}          (shares travel round a ring: rank r passes on all but its successor's)
///   padded, either     (R − 1)·max s
///   all-reduce         2·B − s_r − s_{r+1}  with s the even cut: 2·B·(R − 1)/R
/// and over the T ranks of a TP group, with p the shard of a matrix:
///   redundant gather   (T − 1)·p            each rank
///   hosted gather      p                    each rank but the host
///   hosted scatter     (T − 1)·p            the host
/// and for the agreement (R − 1 + T − 1)·|ExactSum|: each rank's sum to every other, over the DP group, then the TP group.
// clang-format on
Traffic traffic_of(const Plan& plan, const Model& model, const GradientBuffer& buffer, const WireTypes& types);

}  // namespace canzona
