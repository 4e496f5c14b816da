#include "reference/mesh/mesh.hpp"

#include <gtest/gtest.h>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

TEST(Mesh, TensorParallelRanksAreAdjacent) {
  const Mesh mesh = make_mesh(3, 2, 2);
  EXPECT_EQ(mesh.ranks(), 12);
  EXPECT_EQ(mesh.coordinate(0), (Coordinate{0, 0, 0}));
  EXPECT_EQ(mesh.coordinate(1), (Coordinate{0, 1, 0}));
  EXPECT_EQ(mesh.coordinate(2), (Coordinate{1, 0, 0}));
  EXPECT_EQ(mesh.coordinate(6), (Coordinate{0, 0, 1}));
  EXPECT_EQ(mesh.tp_group(3), (std::vector<int>{2, 3}));
  EXPECT_EQ(mesh.dp_group(3), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(mesh.dp_group(9), (std::vector<int>{7, 9, 11}));
}

TEST(Mesh, RankAndCoordinateAreInverse) {
  const Mesh mesh = make_mesh(4, 8, 3);
  for (int rank = 0; rank < mesh.ranks(); ++rank) EXPECT_EQ(mesh.rank(mesh.coordinate(rank)), rank);
}

TEST(Mesh, HoldsAtMostTwoToTheTwentyRanks) {
  EXPECT_EQ(make_mesh(1 << 20, 1).ranks(), 1 << 20);
  EXPECT_THROW(make_mesh((1 << 20) + 1, 1), InputError);
  EXPECT_THROW(make_mesh(1 << 18, 8), InputError);
  EXPECT_THROW(make_mesh(1 << 20, 1 << 20, 1 << 20), InputError);
  EXPECT_THROW(make_mesh(0, 1), InputError);
  EXPECT_THROW(make_mesh(1, -1), InputError);
}

}  // namespace
}  // namespace canzona
