// Functors on a device: every element once, sums and maxima in a fixed order.
#include "optimized/device/launch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optimized/device/narrow.hpp"
#include "tests/device/device_under_test.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using device_under_test::OnDevice;

struct AddIndex {
  std::int64_t* values;
  CANZONA_KERNEL void operator()(std::int64_t i) { values[i] += i; }
};
struct AddRowAndIndex {
  std::int64_t* values;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) { values[i] += 1000000 * row + i; }
};
struct Value {
  const float* values;
  CANZONA_KERNEL double operator()(std::int64_t i) const { return static_cast<double>(values[i]); }
};
struct LargeValue {
  CANZONA_KERNEL double operator()(std::int64_t i) const { return 1e8 + static_cast<double>(i); }
};

/// A functor that states its operands: one read, one read and written, one written; loads what it adds.
template <class T>
struct Accumulate {
  const float* more;
  const T* from;
  float* sum;
  T* last;
  float own_more = 0;

  CANZONA_KERNEL void load() { own_more = *more; }
  CANZONA_OPERANDS(from, sum, Out{last})
  CANZONA_KERNEL void operator()(T value, float& own_sum, T& own_last) const {
    own_sum += static_cast<float>(value) + own_more;
    own_last = value;
  }
};

TEST(DeviceLaunch, MeetsEveryElementOnceWithItsRow) {
  for (const int threads : device_under_test::thread_counts()) {
    OnDevice own(threads);
    for (const auto& [rows, cols] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 5}, {1, 1}, {1, 7}, {3, 7}, {1, 1000}, {5, 66007}}) {
      const auto met = own.zeros<std::int64_t>(rows * cols), met_in_rows = own.zeros<std::int64_t>(rows * cols);
      launch(*own.stream, rows * cols, AddIndex{met.raw()});
      launch_rows(*own.stream, rows, cols, AddRowAndIndex{met_in_rows.raw()});
      const auto indices = own.get(met, rows * cols), marks = own.get(met_in_rows, rows * cols);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        ASSERT_EQ(indices[static_cast<std::size_t>(i)], i);
        ASSERT_EQ(marks[static_cast<std::size_t>(i)], 1000000 * (i / cols) + i);
      }
    }
  }
}

/// From element `offset` of its arrays on, which is where 16 bytes begin or is not; what stands around stays 7.
template <class T>
void expect_operands_met_once(std::int64_t offset, std::int64_t count) {
  OnDevice own;
  const std::int64_t size = offset + count + 9;
  std::vector<T> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(static_cast<T>(static_cast<float>(i % 100)));
  const std::vector<float> sevens(values.size(), 7);
  const std::vector<T> narrow_sevens(values.size(), static_cast<T>(7.0f));
  const float half = 0.5f;
  const auto from = own.put(values.data(), size), last = own.put(narrow_sevens.data(), size);
  const auto sum = own.put(sevens.data(), size), more = own.put(&half, 1);
  launch(*own.stream, count,
         Accumulate<T>{more.raw(), (from + offset).raw(), (sum + offset).raw(), (last + offset).raw()});
  const auto sums = own.get(sum, size);
  const auto lasts = own.get(last, size);
  for (std::int64_t i = 0; i < size; ++i) {
    const bool is_met = i >= offset && i < offset + count;
    const auto value = static_cast<float>(i % 100);
    ASSERT_EQ(sums[static_cast<std::size_t>(i)], is_met ? 7 + value + 0.5f : 7) << i << " of " << count;
    ASSERT_EQ(static_cast<float>(lasts[static_cast<std::size_t>(i)]), is_met ? value : 7) << i << " of " << count;
  }
}

TEST(DeviceLaunch, MeetsEveryElementOfOperandsOnceInPacksOrOneByOne) {
  EXPECT_EQ(kPackWidth<Accumulate<float>>, 4);
  EXPECT_EQ(kPackWidth<Accumulate<Bf16>>, 8);
  for (const std::int64_t offset : {0, 1, 4, 8}) {
    for (const std::int64_t count : {0, 1, 3, 4, 5, 7, 8, 9, 1000, 5003}) {
      expect_operands_met_once<float>(offset, count);
      expect_operands_met_once<Bf16>(offset, count);
      expect_operands_met_once<Fp16>(offset, count);
    }
  }
}

TEST(DeviceLaunch, SumsRowsInDouble) {
  OnDevice own;
  for (const std::int64_t cols : {0, 1, 7, 8, 9, 1000, 100003}) {
    const auto sums = own.zeros<double>(3);
    launch_sums(*own.stream, 3, cols, sums, LargeValue{});
    const std::vector<double> got = own.get(sums, 3);
    for (std::int64_t row = 0; row < 3; ++row) {
      double expected = 0;  // exact: whole numbers below 2^53
      for (std::int64_t col = 0; col < cols; ++col) expected += 1e8 + static_cast<double>(row * cols + col);
      EXPECT_EQ(got[static_cast<std::size_t>(row)], expected) << cols;
    }
  }
}

TEST(DeviceLaunch, SumsAreTheSameOnAnyNumberOfThreads) {
  const Matrix<float> values = testing_support::random_matrix<float>(5, 30011);
  const auto sums_on = [&](int threads) {
    OnDevice own(threads);
    const auto sums = own.zeros<double>(5);
    launch_sums(*own.stream, 5, values.cols(), sums, Value{own.put(values).data.raw()});
    return own.get(sums, 5);
  };
  const std::vector<double> expected = sums_on(1);
  for (const int threads : device_under_test::thread_counts()) EXPECT_EQ(sums_on(threads), expected);
  for (int row = 0; row < 5; ++row)
    EXPECT_NEAR(expected[static_cast<std::size_t>(row)], values.row(row).cast<double>().sum(), 1e-9);
}

TEST(DeviceLaunch, FindsTheLargestAndNaN) {
  OnDevice own;
  const auto largest = own.zeros<double>(1);
  const auto largest_of = [&](const std::vector<float>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    launch_maximum(*own.stream, count, largest, Value{own.put(values.data(), count).raw()});
    return own.get(largest);
  };
  std::vector<float> many(300001);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 5);
  for (const std::vector<float>& values : {std::vector<float>{-3, 4, -7, 1}, many}) {
    EXPECT_EQ(largest_of(values), 4);
    for (const std::size_t place : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
      std::vector<float> spoilt = values;
      spoilt[place] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(largest_of(spoilt))) << place;
    }
  }
}

TEST(DeviceLaunch, SumsSquaresExactly) {
  OnDevice own;
  const Matrix<float> values = testing_support::random_matrix<float>(1, 70001);
  const auto digits = own.zeros<std::int64_t>(ExactSum::kIntegers);
  launch_exact_squares(*own.stream, own.put(values).data, values.size(), digits);
  ExactSum got, expected;
  got.add(own.get(digits, ExactSum::kIntegers).data());
  for (const float value : values.reshaped()) expected.add(static_cast<double>(value) * static_cast<double>(value));
  EXPECT_EQ(got.value(), expected.value());
}

}  // namespace
}  // namespace canzona::optimized
