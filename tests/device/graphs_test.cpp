// Steps that are captured and launched as graphs, where a device has them, against the same steps one by one. Where it
// has none, as the host, both are the same.
#include "optimized/device/functors.hpp"
#include "tests/device/trials.hpp"

namespace canzona::optimized {
namespace {

using device_under_test::kIsHost;
using device_under_test::OnDevice;
using trials::EngineRun;
using trials::Trial;

/// to ← to + value + *more
struct AddTo {
  float value;
  const float* more;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t i) { to[i] += value + *more; }
};

TEST(Graphs, KeepWhatIsCapturedUntilTheyAreLaunched) {
  OnDevice on;
  const auto zero = on.zeros<float>(1), sum = on.zeros<float>(3);
  const auto graph = on.stream->capture([&] { launch(*on.stream, 3, AddTo{1, zero.raw(), sum.raw()}); });
  if (kIsHost) {
    EXPECT_EQ(graph, nullptr);
    return;
  }
  EXPECT_EQ(on.get(sum, 3), (std::vector<float>{0, 0, 0}));
  graph->launch(*on.stream);
  graph->launch(*on.stream);
  EXPECT_EQ(on.get(sum, 3), (std::vector<float>{2, 2, 2}));
}

TEST(Graphs, LeaveAStreamAsItWasWhereACaptureThrows) {
  OnDevice on;
  const auto throws = [] { throw Error("broken on purpose"); };
  if (kIsHost) {
    EXPECT_EQ(on.stream->capture(throws), nullptr);  // it is not called
    return;
  }
  EXPECT_THROW(on.stream->capture(throws), Error);
  const auto zero = on.zeros<float>(1), sum = on.zeros<float>(1);
  launch(*on.stream, 1, AddTo{1, zero.raw(), sum.raw()});
  EXPECT_EQ(on.get(sum), 1);
}

/// What `sum` is after each of five steps that add their number, as a number handed to the kernel or read from memory.
std::vector<float> sums_of_steps(bool in_memory) {
  OnDevice on;
  const auto zero = on.zeros<float>(1), number = on.zeros<float>(1), sum = on.zeros<float>(1);
  CapturedWork work;
  std::vector<float> sums;
  for (const float step : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}) {
    launch(*on.stream, 1, Fill<float>{step, number.raw()});
    work.run(*on.stream, 0, [&] {
      launch(*on.stream, 1, in_memory ? AddTo{0, number.raw(), sum.raw()} : AddTo{step, zero.raw(), sum.raw()});
    });
    sums.push_back(on.get(sum));
  }
  return sums;
}

TEST(CapturedWork, ReadsInEveryStepWhatStandsInTheDevicesMemory) {
  EXPECT_EQ(sums_of_steps(true), (std::vector<float>{1, 3, 6, 10, 15}));
}

// What StepValues are for: a number that is handed over is that of the capture, the second step's, forever.
TEST(CapturedWork, FreezesWhatIsHandedToAKernel) {
  EXPECT_EQ(sums_of_steps(false),
            kIsHost ? (std::vector<float>{1, 3, 6, 10, 15}) : (std::vector<float>{1, 3, 5, 7, 9}));
}

class CapturedSteps : public ::testing::TestWithParam<Trial> {};

TEST_P(CapturedSteps, EqualStepsOneByOneBitByBit) {
  const std::vector<std::int64_t> turns{0, 1, 2};
  EngineRun plain(GetParam(), turns), captured(GetParam(), turns);
  captured.capture();
  Matrix<float> gradient(GetParam().shape.rows * 3, GetParam().shape.cols);
  for (int step = 0; step < 14; ++step) {
    gradient =
        testing_support::random_matrix<float>(gradient.rows(), gradient.cols(), static_cast<std::uint64_t>(step));
    const float factor = step % 3 == 0 ? 0.25f : 1.0f;
    const Matrix<float> expected = plain.step(gradient, factor);
    EXPECT_EQ(captured.step(gradient, factor), expected) << "step " << step;
    EXPECT_NE(expected, Matrix<float>(gradient)) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryOptimizer, CapturedSteps,
    ::testing::Values(Trial{"muon", {}, {6, 9}}, Trial{"muon", {}, {9, 6}, 12, false, "gram"},
                      Trial{"normuon", {}, {6, 9}}, Trial{"adamw", {}, {6, 9}},
                      Trial{"shampoo", {{"precondition_frequency", "4"}, {"beta1", "0.9"}}, {6, 9}},
                      Trial{"shampoo", {{"precondition_frequency", "5"}, {"start_preconditioning_step", "3"}}, {6, 9}},
                      Trial{"shampoo", {{"precondition_frequency", "8"}}, {6, 9}},
                      Trial{"soap", {{"precondition_frequency", "4"}}, {6, 9}},
                      Trial{"soap", {{"precondition_frequency", "5"}, {"first_step", "apply"}}, {6, 9}}));

}  // namespace
}  // namespace canzona::optimized
