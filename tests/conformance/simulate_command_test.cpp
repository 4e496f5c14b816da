// canzona simulate.
#include "tests/conformance/command.hpp"

#include "harness/experiment/paths.hpp"

namespace canzona::harness {
namespace {

using Command = Folder;

TEST_F(Command, SimulateShowsRefreshesApartAndOnAverage) {
  const auto refresh_of = [](const std::string& optimizer, const std::string& way) {
    const Outcome outcome = canzona({"simulate", "--model", "qwen3-32b", "--strategy", "canzona", "--optimizer",
                                     optimizer, "--refresh", way, "--json", "-"});
    return json::parse(outcome.out);
  };
  for (const char* optimizer : {"shampoo", "soap"}) {
    const json together = refresh_of(optimizer, "together");
    const json staggered = refresh_of(optimizer, "staggered");
    EXPECT_EQ(together["confidence"], "low");
    EXPECT_EQ(together["refresh"]["period"], 10);
    // Two ordinary iterations are run, the second of which stands for eight, and the refresh.
    EXPECT_EQ(together["refresh"]["steps"].size(), 3u);
    double sum = 0, times = 0;
    for (const json& step : together["refresh"]["steps"]) {
      sum += step["times"].get<double>() * step["seconds"].get<double>();
      times += step["times"].get<double>();
    }
    EXPECT_EQ(times, 10);
    EXPECT_NEAR(together["seconds"]["optimizer_step"].get<double>(), sum / 10, 1e-9);
    EXPECT_EQ(together["refresh"]["worst_step"], together["refresh"]["steps"].back()["seconds"]);
    EXPECT_LT(staggered["refresh"]["worst_step"], together["refresh"]["worst_step"]) << optimizer;
  }
}

TEST_F(Command, SimulateGivesTimesPartsAndSpeedUps) {
  const Outcome outcome = canzona({"simulate", "--model", "qwen3-32b", "--cluster", "h100-256", "--dp", "32", "--tp",
                                   "8", "--strategy", "all", "--optimizer", "muon", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json records = json::parse(outcome.out);
  EXPECT_EQ(records.size(), testing_support::strategy_names().size());
  for (const json& record : records) {
    EXPECT_EQ(record["kind"], "simulated");
    EXPECT_EQ(record["mesh"], (json{{"dp", 32}, {"tp", 8}, {"pp", 1}}));
    for (const char* key : {"forward_backward", "optimizer_step", "iteration"}) EXPECT_GT(record["seconds"][key], 0.0);
    for (const char* key : {"compute", "exposed_communication", "waiting"}) EXPECT_GE(record["parts"][key], 0.0);
    for (const char* baseline : {"synchronous", "layerwise"}) EXPECT_GT(record["speedup"][baseline]["iteration"], 0.0);
  }
}

TEST_F(Command, SimulateOfARareRefreshTakesNoLonger) {
  const auto step = [](const std::string& frequency) {
    const Outcome outcome = canzona({"simulate", "--model", "qwen3-8b", "--strategy", "canzona", "--optimizer", "soap",
                                     "--optimizer-option", "precondition_frequency=" + frequency, "--json", "-"});
    return json::parse(outcome.out)["seconds"]["optimizer_step"].get<double>();
  };
  EXPECT_LT(step("1000000"), step("1000"));
  expect_refused({"simulate", "--micro-batches", "4"}, {"micro-batches is 4", "whole sequences of 4096"});
}

TEST_F(Command, SimulateWritesAChromeTrace) {
  const Outcome outcome =
      canzona({"simulate", "--model", "qwen3-1.7b", "--strategy", "canzona", "--trace", (path / "t.json").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream stream(path / "t.json");
  const json trace = json::parse(stream);
  std::set<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      EXPECT_GE(event["dur"], 0.0);
    }
    names.insert(event["name"].get<std::string>());
  }
  EXPECT_TRUE(names.contains("Forward(0)"));
  EXPECT_TRUE(names.contains("GatherParameters(0)"));
}

TEST_F(Command, SimulateRefusesClustersThatDoNotFitOrAreSpoilt) {
  expect_refused({"simulate", "--dp", "64", "--tp", "8"}, {"64 × 8 = 512 GPUs", "up to the 256 of cluster h100-256"});
  expect_refused({"simulate", "--cluster", "b300"}, {"cluster", "'b300'", "a100-256, h100-256"});
  expect_refused({"simulate", "--tokens-per-gpu", "0"}, {"--tokens-per-gpu", "'0'"});
  expect_refused({"simulate", "--uneven", "magic"}, {"--uneven", "'magic'", "per-owner, padded, send-recv"});
  expect_refused({"simulate", "--overlap", "maybe"}, {"--overlap", "'maybe'", "on, off"});
  std::ifstream stream(project_folder() / "experiments/clusters/h100-256.toml");
  const std::string good(std::istreambuf_iterator<char>(stream), {});
  const auto spoilt = [&](const std::string& from, const std::string& to, const std::vector<std::string>& parts) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    std::vector<std::string> all = parts;
    all.push_back("spoilt.toml");
    expect_refused({"simulate", "--cluster", file("spoilt.toml", text)}, all);
  };
  spoilt("{ value = 450e9", "{ value = -450e9", {"nvlink_bytes_per_second", "'value' is -450000000000"});
  spoilt("teraflops = 753", "", {"gemm 2", "'teraflops' is missing"});
  spoilt("0.95, 0.923]", "0.95]", {"efficiency", "5 values", "'nodes' (6)"});
  spoilt("1073741824, 4294967296]", "1073741824]", {"efficiency", "7 values", "'bytes' (6)"});
  spoilt("gpus_per_node = 8", "gpus_per_node = 6", {"'gpus_per_node' is 6", "a divisor of 'gpus' (256)"});
  spoilt("source = \"aliyun/SimAI nic_ratio.csv\"", "source = ''", {"'source'", "where the figure comes from"});
  spoilt("size = 8192", "size = 1024", {"gemm", "1024 after 2048", "ascending"});
  spoilt("[0.79,", "[nan,", {"fraction"});
  spoilt("gpus = 256", "gpus = 256\ncolour = 'red'", {"'colour'", "unknown"});
  spoilt("source = \"H100 fp16, triton #2339\"", "", {"gemm 1", "'source' is missing"});
}

}  // namespace
}  // namespace canzona::harness
