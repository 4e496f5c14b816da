// canzona run on the CUDA backend and the emulated GPU: every optimizer under every strategy, checked against one
// device with the bounds of a real run, for meshes of 1 to 8 ranks and the three ways of uneven collectives.
#include <span>

#include "tests/conformance/command.hpp"

#include "reference/optimizers/optimizer.hpp"
#include "tests/backend.hpp"

namespace canzona::harness {
namespace {

struct Case {
  std::string optimizer;
  std::string way;
};

class RunsOnCuda : public ::testing::TestWithParam<Case> {};

TEST_P(RunsOnCuda, EqualToOneDeviceWithinTheBound) {
  const std::vector<std::pair<int, int>> all{{4, 2}, {1, 1}, {2, 1}, {3, 1}, {8, 2}, {8, 8}};
  for (const auto& [ranks, tp] : std::span(all).first(testing_support::kIsSlow ? 1 : all.size())) {
    testing_support::backend();
    std::vector<std::string> line{"run",
                                  "--backend",
                                  "cuda",
                                  "--backend-option",
                                  "uneven=" + GetParam().way,
                                  "--steps",
                                  "2",
                                  "--warmup",
                                  "0",
                                  "--check",
                                  "--json",
                                  "-",
                                  "--bucket-size",
                                  "32768",
                                  "--ranks",
                                  std::to_string(ranks),
                                  "--tp",
                                  std::to_string(tp),
                                  "--optimizer",
                                  GetParam().optimizer};
    for (const auto& [name, value] : reference::Optimizers::instance().find(GetParam().optimizer).verification)
      line.insert(line.end(), {"--optimizer-option", name + '=' + value});
    const Outcome outcome = canzona(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
    const json record = json::parse(outcome.out);
    EXPECT_EQ(record["backend"], "cuda");
    EXPECT_EQ(record["results"].size(), 5u);
    for (const json& result : record["results"]) {
      EXPECT_EQ(result["kind"], "emulated");
      EXPECT_FALSE(result.contains("seconds"));
      EXPECT_FALSE(result.contains("phases"));
      EXPECT_TRUE(result["check"]["passed"]);
      EXPECT_GT(result["check"]["compared"], 0);
    }
    EXPECT_TRUE(emulated_gpu::complaints().empty()) << emulated_gpu::complaints().front();
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& optimizer : reference::Optimizers::instance().all()) {
    for (const char* way : {"per-owner", "padded", "pairwise"}) all.push_back({optimizer.name, way});
  }
  return all;
}
// Optimizers register themselves: they are there when tests are listed, not when this file is initialized.
INSTANTIATE_TEST_SUITE_P(EveryWay, RunsOnCuda, ::testing::ValuesIn(cases()), [](const auto& own) {
  std::string name = own.param.optimizer + "_" + own.param.way;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(EmulatedRun, EqualsOneDeviceWithGraphsAndWithoutWhateverTheRate) {
  for (const char* graphs : {"on", "off"}) {
    testing_support::backend();
    const Outcome outcome = canzona({"run", "--backend", "cuda", "--graphs", graphs, "--ranks", "4", "--tp", "2",
                                     "--steps", "4", "--optimizer-option", "warmup_steps=6", "--check", "--json", "-"});
    ASSERT_EQ(outcome.code, 0) << graphs << outcome.err << outcome.out;
    EXPECT_EQ(json::parse(outcome.out)["settings"]["graphs"], graphs == std::string("on"));
    EXPECT_TRUE(emulated_gpu::complaints().empty()) << emulated_gpu::complaints().front();
  }
}

TEST(EmulatedRun, InTwoBytesStaysWithinTheBound) {
  for (const char* precision : {"bf16", "fp16"}) {
    for (const char* way : {"per-owner", "padded", "pairwise"}) {
      if (testing_support::kIsSlow && precision != std::string("bf16")) continue;
      testing_support::backend();
      const char* symmetric = way == std::string("padded") ? "symmetric=cublas" : "symmetric=tiles";
      const Outcome outcome = canzona({"run",
                                       "--backend",
                                       "cuda",
                                       "--backend-option",
                                       std::string("uneven=") + way,
                                       "--backend-option",
                                       symmetric,
                                       "--precision",
                                       precision,
                                       "--gradient-dtype",
                                       "bf16",
                                       "--ranks",
                                       "6",
                                       "--tp",
                                       "2",
                                       "--steps",
                                       "2",
                                       "--warmup",
                                       "0",
                                       "--check"});
      EXPECT_EQ(outcome.code, 0) << precision << ' ' << way << outcome.err << outcome.out;
      EXPECT_TRUE(emulated_gpu::complaints().empty()) << emulated_gpu::complaints().front();
    }
  }
}

TEST(EmulatedRun, ComputesLargeMatricesOfASampleInFp64) {
  struct Case {
    const char *optimizer, *precision, *flops;
  };
  const std::vector<Case> all{{"muon", "bf16", "2e7"}, {"soap", "fp32", "1e8"}, {"shampoo", "fp32", "1e8"}};
  for (const Case& own : std::span(all).first(testing_support::kIsSlow ? 1 : all.size())) {
    testing_support::backend();
    const Outcome outcome =
        canzona({"run",         "--backend",   "cuda",          "--ranks", "4",           "--tp",
                 "2",           "--strategy",  "canzona",       "--steps", "1",           "--warmup",
                 "0",           "--check=1",   "--check-flops", own.flops, "--optimizer", own.optimizer,
                 "--precision", own.precision, "--json",        "-"});
    ASSERT_EQ(outcome.code, 0) << own.optimizer << outcome.err << outcome.out;
    const json check = json::parse(outcome.out)["results"][0]["check"];
    EXPECT_EQ(check["parameters"], 7) << own.optimizer;
    EXPECT_EQ(check["on_device_in_fp64"], 4) << own.optimizer;
    EXPECT_TRUE(emulated_gpu::complaints().empty()) << emulated_gpu::complaints().front();
  }
}

TEST(EmulatedRun, IsRefusedWithTheNumbersWhereItDoesNotFit) {
  testing_support::backend();
  emulated_gpu::reset({.memory_bytes = std::size_t{66} << 20});
  const Outcome outcome = canzona({"run", "--backend", "cuda", "--ranks", "1", "--strategy", "canzona", "--model",
                                   "qwen3-mini", "--steps", "2", "--warmup", "0"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("canzona: rank 0 would take"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("gradients"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("GB are free"), std::string::npos) << outcome.err;
  testing_support::backend();
}

// On 4 ranks synchronous takes 137 MB each, the others up to 124.
TEST(EmulatedRun, OfAStudyOnlyThoseStrategiesAreInDoubtThatDoNotFit) {
  testing_support::backend();
  emulated_gpu::reset({.memory_bytes = 133'000'000});
  const Outcome outcome = canzona({"environment", "--backend", "cuda", "--ranks", "4", "--model", "qwen3-mini"});
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_NE(outcome.out.find("synchronous: rank 0 would take"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("canzona: rank"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("doubtful"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("emulated"), std::string::npos) << "what the devices are called";
  EXPECT_EQ(outcome.out.find("GB/s"), std::string::npos) << outcome.out;
  testing_support::backend();
}

TEST(EmulatedRun, TellsNoTime) {
  testing_support::backend();
  expect_refused({"calibrate", "--backend", "cuda", "--ranks", "1"}, {"emulated device tells no time"});
  testing_support::backend();
  expect_refused({"run", "--backend", "cuda", "--ranks", "2", "--strategy", "canzona", "--trace", "trace.json"},
                 {"emulated device tells no time"});
  EXPECT_FALSE(std::filesystem::exists("trace.json"));
  testing_support::backend();
  const Outcome outcome = canzona({"run", "--backend", "cuda", "--ranks", "2", "--steps", "1", "--warmup", "0"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find(" ms"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace canzona::harness
