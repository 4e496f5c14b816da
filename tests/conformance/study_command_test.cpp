// What experiments/cluster.sh asks of the command: environment, what fits, collect and pack.
#include <gtest/gtest.h>

#include "harness/record/provenance.hpp"
#include "tests/conformance/command.hpp"

namespace canzona::harness {
namespace {

using StudyCommand = Folder;

TEST_F(StudyCommand, EnvironmentFindsWhatWasStartedElsewhereThanMeant) {
  const auto examine = [](std::vector<std::string> more) {
    std::vector<std::string> line{"environment", "--ranks", "4", "--tp", "2", "--json", "-"};
    line.insert(line.end(), more.begin(), more.end());
    return canzona(line);
  };
  const auto verdict = [](const Outcome& outcome, const std::string& what) {
    const json record = json::parse(outcome.out);
    for (const json& finding : record["findings"]) {
      if (finding["what"] == what) return finding["verdict"].get<std::string>();
    }
    return std::string("missing");
  };
  const Outcome as_meant = examine({"--nodes", "1", "--ranks-per-node", "4"});
  EXPECT_EQ(as_meant.code, 0) << as_meant.err;
  EXPECT_EQ(verdict(as_meant, "ranks"), "good");
  EXPECT_EQ(verdict(as_meant, "tensor-parallel groups"), "good");
  EXPECT_EQ(verdict(as_meant, "libraries"), "good");
  EXPECT_EQ(verdict(as_meant, "memory"), "good");
  EXPECT_EQ(json::parse(as_meant.out)["hosts"].size(), 1U);
  const Outcome elsewhere = examine({"--nodes", "2", "--ranks-per-node", "2"});
  EXPECT_EQ(elsewhere.code, 1);
  EXPECT_EQ(verdict(elsewhere, "ranks"), "BAD");
  // No host gathers at half of what an H100's NVLink does.
  EXPECT_EQ(verdict(examine({"--cluster", "h100-256"}), "all-gather over TP"), "doubtful");
  expect_refused({"environment", "--ranks", "2", "--nodes", "1"}, {"--nodes", "--ranks-per-node"});
}

TEST_F(StudyCommand, EnvironmentNamesWhatDoesNotFit) {
  const Outcome outcome = canzona(
      {"environment", "--ranks", "1", "--model", "qwen3-32b", "--strategy", "canzona", "--bucket-size", "default"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("rank 0 would take"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("--precision bf16"), std::string::npos) << "what to do";
}

TEST_F(StudyCommand, EveryStrategyThatDoesNotFitIsNamed) {
  const Outcome outcome = canzona({"environment", "--ranks", "1", "--model", "qwen3-32b", "--bucket-size", "default"});
  EXPECT_EQ(outcome.code, 1) << "none fits";
  for (const std::string& strategy : testing_support::strategy_names())
    EXPECT_NE(outcome.out.find(strategy + ": rank 0 would take"), std::string::npos) << strategy;
}

TEST_F(StudyCommand, PlanHoldsMemoryAgainstAGpu) {
  const auto plan = [](const std::string& strategy) {
    return canzona({"plan", "--model", "qwen3-14b", "--dp", "2", "--tp", "4", "--strategy", strategy, "--memory",
                    "--cluster", "h100-256"})
        .out;
  };
  EXPECT_NE(plan("synchronous").find("lacks "), std::string::npos);
  EXPECT_NE(plan("canzona").find("fits"), std::string::npos);
  expect_refused({"plan", "--cluster", "h100-256"}, {"--cluster", "--memory"});
}

TEST_F(StudyCommand, AStrategysOwnBucketSizeHasAName) {
  const auto buckets = [](std::vector<std::string> more) {
    std::vector<std::string> line{"plan", "--model", "qwen3-0.6b", "--strategy", "canzona", "--json", "-"};
    line.insert(line.end(), more.begin(), more.end());
    return json::parse(canzona(line).out)["buckets"];
  };
  EXPECT_EQ(buckets({"--bucket-size", "default"}), buckets({}));
  EXPECT_NE(buckets({"--bucket-size", "1000000"}), buckets({}));
}

TEST_F(StudyCommand, NamesAndTheRevisionComeAlone) {
  EXPECT_EQ(canzona({"list", "--names", "strategies"}).out, "synchronous\nlayerwise\nlayerwise-lpt\nstatic\ncanzona\n");
  EXPECT_EQ(canzona({"--version"}).out, revision_name() + "\n");
}

TEST_F(StudyCommand, CollectAndPackNameWhatTheyCannotRead) {
  expect_refused({"collect", path.string()}, {"records", path.string()});
  fs::create_directories(path / "records");
  const std::string other = file("records/other.json", R"({"kind": "computed"})");
  expect_refused({"collect", path.string()}, {other, "a record of 'canzona run'"});
  fs::create_directories(path / "empty");
  expect_refused({"pack", (path / "empty").string(), "--output", (path / "a.tar.gz").string()}, {"empty", "a study"});
  expect_refused({"pack", path.string(), "--output", other + "/a.tar.gz"}, {"--output", other});
}

TEST_F(StudyCommand, CollectTellsOfAFailedCheck) {
  ASSERT_EQ(canzona({"run", "--ranks", "1", "--strategy", "canzona", "--steps", "1", "--warmup", "0", "--json",
                     (path / "records/a.json").string()})
                .code,
            0);
  EXPECT_EQ(canzona({"collect", path.string()}).code, 0);
  fs::create_directories(path / "checks");
  file("checks/a.json",
       R"({"model": "m", "mesh": {"dp": 1, "tp": 1}, "results": [{"strategy": "static", "optimizer": "o",
       "check": {"worst_error": 0.5, "bound": 0.1, "passed": false, "parameter": "p", "parameters": 2,
       "of": 7}}]})");
  EXPECT_EQ(canzona({"collect", path.string()}).code, 1);
  std::ifstream stream(path / "report.md");
  const std::string report{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_NE(report.find("| m | dp 1 × tp 1 | o | static | 2 of 7 | 0.5 | 0.1 | p | NO |"), std::string::npos) << report;
}

}  // namespace
}  // namespace canzona::harness
