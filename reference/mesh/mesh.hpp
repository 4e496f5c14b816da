// The grid of ranks: data parallel × tensor parallel × pipeline parallel.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona {

/// A rank's place in the mesh.
struct Coordinate {
  int dp = 0;
  int tp = 0;
  int pp = 0;
  friend bool operator==(const Coordinate&, const Coordinate&) = default;
};

/// dp × tp × pp ranks. Adjacent ranks share a node: TP is innermost, then DP, then PP
/// (rank = (pp·DP + dp)·TP + tp), as in Megatron's default order.
struct Mesh {
  int dp = 1;
  int tp = 1;
  int pp = 1;

  int ranks() const { return dp * tp * pp; }
  Coordinate coordinate(int rank) const { return {rank / tp % dp, rank % tp, rank / tp / dp}; }
  int rank(const Coordinate& at) const { return (at.pp * dp + at.dp) * tp + at.tp; }

  /// The ranks that differ from `rank` in one coordinate only, `rank` included, ascending.
  std::vector<int> dp_group(int rank) const;
  std::vector<int> tp_group(int rank) const;

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

/// Throws InputError unless every size is positive and there are at most 2²⁰ ranks.
Mesh make_mesh(std::int64_t dp, std::int64_t tp, std::int64_t pp = 1);

}  // namespace canzona
