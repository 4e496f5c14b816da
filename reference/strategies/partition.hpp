// What the strategies share: cutting a bucket between matrices, and grouping matrices.
#pragma once

#include <functional>
#include <vector>

#include "reference/plan/cost.hpp"
#include "reference/plan/plan.hpp"

namespace canzona {

/// A bucket seen by a planner: matrices, which are atomic, separated by gaps that may be cut anywhere (elementwise
/// parameters, possibly none). gaps[i] lies before matrix i, gaps[n] after the last; a cut "at boundary i" falls in
/// gaps[i].
struct AtomicBucket {
  Range elements;
  std::vector<int> matrices;         ///< parameters, in buffer order
  std::vector<std::int64_t> begins;  ///< first element of each matrix
  std::vector<Range> gaps;           ///< matrices.size() + 1 of them, ends aligned to 64
};

AtomicBucket atomic_bucket(const Model& model, const GradientBuffer& buffer, const Bucket& bucket);

/// Segments for ranks 0…R−1 in order, from the boundaries (non-decreasing) of the R − 1 cuts between them. Cuts that
/// fall in one gap share it out evenly, at multiples of 64 elements.
std::vector<Segment> segments_between(const AtomicBucket& bucket, const std::vector<int>& boundaries);

/// Start-index ownership of one bucket over `dp` ranks: the boundaries that give a matrix to the rank whose uniform
/// range [r·B/R, (r+1)·B/R) holds its first element.
std::vector<int> start_index_boundaries(const AtomicBucket& bucket, int dp);

/// Per DP rank, the matrices that it owns in buffer order; one list of all of them when replicated.
std::vector<std::vector<int>> owned_matrices(const Plan& plan, const Model& model, const GradientBuffer& buffer);

/// Micro-groups of one matrix each, in buffer order: how a redundant update gathers.
std::vector<std::vector<MicroGroup>> one_by_one(const Plan& plan, const Model& model, const GradientBuffer& buffer);

}  // namespace canzona
