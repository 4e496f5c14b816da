// What is measured, made one: clocks of several machines, samples of several rounds.
#include "harness/run/clock.hpp"

#include <gtest/gtest.h>

#include "harness/run/timing.hpp"

namespace canzona::harness {
namespace {

// A clock 100 s ahead. At the first meeting it came last (true time 1.2), at the second first (2.0); all left soon
// after.
TEST(ClockOffset, LiesBetweenWhatMeetingsAllow) {
  const std::vector<Meeting> first{{1.0, 1.25}, {2.1, 2.12}};
  const std::vector<Meeting> own{{101.2, 101.22}, {102.0, 102.15}};
  const ClockOffset both = offset_between(own, first);
  EXPECT_NEAR(both.seconds, 100.0, 1e-9);  // between 101.2 − 1.25 and 102.15 − 2.1
  EXPECT_NEAR(both.error, 0.05, 1e-9);
  const ClockOffset one = offset_between({own[0]}, {first[0]});
  EXPECT_NEAR(one.seconds, 100.085, 1e-9);  // between 99.95 and 100.22
  EXPECT_NEAR(one.error, 0.135, 1e-9);
}

TEST(ClockOffset, OfOneClockIsNothing) {
  const std::vector<Meeting> own{{1.0, 1.5}};
  EXPECT_EQ(offset_between(own, own).seconds, 0);
}

// 4 and 6 are the middle half of 1, 4, 6, 100; what lies outside does not count, however far.
TEST(Midmean, IsTheMeanOfTheMiddleHalf) {
  EXPECT_EQ(midmean_of({100, 4, 1, 6}), 5);
  EXPECT_EQ(midmean_of({2, 4, 9}), 5);
  EXPECT_EQ(midmean_of({7}), 7);
}

}  // namespace
}  // namespace canzona::harness
