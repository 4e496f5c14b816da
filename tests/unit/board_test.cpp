// The board on which ranks say where they stand.
#include "optimized/engine/board.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace canzona::optimized {
namespace {

TEST(Board, TellsTheStepOfEachStream) {
  std::vector<Board::Place> places(2);
  Board board({&places[0], &places[1], nullptr});
  EXPECT_EQ(board.describe(0), "rank 0: before its first step");
  board.publish(0, canzona::Stream::compute, Update{12});
  board.publish(0, canzona::Stream::dp, ReduceGradients{3});
  board.publish(0, canzona::Stream::tp, AgreeOnGradients{true});
  EXPECT_EQ(board.describe(0), "rank 0: Update(12) on compute, ReduceGradients(3) on dp, AgreeOnGradients(tp) on tp");
  board.publish(0, canzona::Stream::compute, Backward{5, 0});
  EXPECT_EQ(board.describe(0), "rank 0: Backward(5) on compute, ReduceGradients(3) on dp, AgreeOnGradients(tp) on tp");
  EXPECT_EQ(board.describe(2), "rank 2, on another machine");
}

TEST(Board, WhoeverIsNotHeardOfIsSilent) {
  std::vector<Board::Place> places(3);
  Board board({&places[0], &places[1], &places[2], nullptr});
  for (const int rank : {0, 1, 2}) board.hear(rank);
  EXPECT_EQ(board.silent(10), std::vector<int>{});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  board.hear(0);
  board.publish(2, canzona::Stream::compute, Update{1});
  EXPECT_EQ(board.silent(0.04), std::vector<int>{1});
  // A rank that waits for rank 2, which itself waits, is told of rank 1.
  const Watch watch = make_watch(board, 0, {0, 2}, 0.04);
  EXPECT_EQ(watch.describe({1}), "rank 2: Update(1) on compute (silent: rank 1: before its first step)");
}

}  // namespace
}  // namespace canzona::optimized
