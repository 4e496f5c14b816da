// A plan: who owns what, who computes what, and by which collectives. Data without pointers; a
// strategy writes it, a schedule unrolls it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reference/buffer/gradient_buffer.hpp"
#include "reference/mesh/mesh.hpp"
#include "reference/model/model.hpp"

namespace canzona {

/// How gradients are averaged over data parallelism.
enum class GradientReduction {
  all_reduce,             ///< every rank receives everything
  reduce_scatter,         ///< every rank receives what it owns, uneven
  padded_reduce_scatter,  ///< the same, each share padded to the bucket's largest
};

/// How updated parameters return to the other data-parallel ranks.
enum class ParameterGather {
  none,               ///< every rank updated everything
  after_step,         ///< all-gather that the step waits for
  overlapped,         ///< all-gather under the next forward
  padded_overlapped,  ///< the same, each share padded to the bucket's largest
};

/// How a tensor-parallel group updates a matrix that none of its ranks holds whole.
enum class MatrixUpdate {
  redundant,  ///< all-gather the shards, every rank computes, each keeps its slice
  hosted,     ///< all-to-all to one host, which computes, and all-to-all back
};

/// A run of the gradient buffer, padding included, and the DP rank that owns it.
struct Segment {
  Range elements;
  int owner = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// A matrix and the TP rank that computes its update (any of them if the update is redundant; 0 by convention).
struct HostedMatrix {
  int parameter = 0;
  int host = 0;
  friend bool operator==(const HostedMatrix&, const HostedMatrix&) = default;
};

/// Matrices whose shards travel in one collective.
struct MicroGroup {
  std::vector<HostedMatrix> members;
  friend bool operator==(const MicroGroup&, const MicroGroup&) = default;
};

struct Plan {
  std::string strategy;
  std::map<std::string, std::string> options;  ///< of the strategy, defaults included
  Mesh mesh;
  GradientReduction gradient_reduction = GradientReduction::all_reduce;
  ParameterGather parameter_gather = ParameterGather::none;
  MatrixUpdate matrix_update = MatrixUpdate::redundant;
  bool pipelined = false;  ///< micro-group i + 1 is gathered and i − 1 scattered while i computes

  /// Per bucket, the segments that tile it. Empty when every DP rank owns everything (`replicated`).
  std::vector<std::vector<Segment>> buckets;

  /// Per DP rank, in order of execution; a single list when replicated.
  std::vector<std::vector<MicroGroup>> micro_groups;

  bool replicated() const { return buckets.empty(); }
  const std::vector<MicroGroup>& groups_of(int dp_rank) const { return micro_groups[replicated() ? 0 : dp_rank]; }

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The segments of `bucket` that DP rank `dp_rank` owns; the whole bucket when replicated.
std::vector<Range> owned_ranges(const Plan& plan, const GradientBuffer& buffer, int bucket, int dp_rank);

/// Elements each DP rank owns in a bucket; everything for all of them when replicated.
std::vector<std::int64_t> owned_elements(const Plan& plan, const GradientBuffer& buffer, int bucket);

/// For each matrix parameter the DP rank that owns it, −1 for elementwise parameters and when replicated. Throws
/// PlanError when a matrix is cut or an owner does not exist.
std::vector<int> matrix_owners(const Plan& plan, const Model& model, const GradientBuffer& buffer);

/// Throws PlanError naming the parameter, bucket or rank unless: segments tile every bucket; owners and hosts exist; no
/// matrix is cut; each DP rank's micro-groups hold exactly the matrices that it owns, each once.
void validate(const Plan& plan, const Model& model, const GradientBuffer& buffer);

}  // namespace canzona
