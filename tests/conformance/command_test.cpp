// The command as a person meets it: exit codes, one-line complaints, JSON, whole files.
#include "harness/cli/command.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/experiment/paths.hpp"
#include "tests/support.hpp"

namespace canzona::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome canzona(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_command(arguments);
  std::string out = ::testing::internal::GetCapturedStdout();
  return {code, std::move(out), ::testing::internal::GetCapturedStderr()};
}

/// Bad input: exit code 2, one line on standard error that holds every `part`, nothing on standard output.
void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const Outcome outcome = canzona(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  for (const std::string& part : parts)
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << " lacks " << part;
}

class Folder : public ::testing::Test {
 protected:
  Folder() : path(testing_support::own_path("")) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() override { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
  fs::path path;
};
using Command = Folder;

TEST_F(Command, PlanWritesTheBalanceOfQwen3_32B) {
  const Outcome outcome = canzona({"plan", "--model", "qwen3-32b", "--dp", "32", "--tp", "8", "--strategy", "canzona",
                                   "--optimizer", "muon", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  EXPECT_NEAR(record["balance"]["gpu"].get<double>(), 2.04, 0.005);
  EXPECT_EQ(record["kind"], "computed");
  EXPECT_EQ(record["loads"]["gpu"].size(), 256u);
  EXPECT_EQ(record["provenance"]["command"][1], "plan");
  EXPECT_EQ(record["provenance"]["format"], 1);
}

TEST_F(Command, PlanOfAllStrategiesIsAnArray) {
  const Outcome outcome = canzona({"plan", "--model", "qwen3-tiny", "--dp", "4", "--tp", "2", "--json", "-"});
  EXPECT_EQ(json::parse(outcome.out).size(), testing_support::strategy_names().size());
}

TEST_F(Command, EqualInputsGiveEqualRecords) {
  const std::vector<std::string> arguments{"plan", "--model", "qwen3-4b", "--json", "-"};
  EXPECT_EQ(canzona(arguments).out, canzona(arguments).out);
}

TEST_F(Command, VerifyCountsItsCases) {
  const Outcome outcome =
      canzona({"verify", "--dp", "3", "--tp", "2", "--strategy", "canzona", "--iterations", "2", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  // At least {muon, adamw} × {fp64, fp32, bf16}.
  EXPECT_EQ(outcome.out.substr(0, 9), "{\"cases\":");
  const json record = json::parse(outcome.out);
  EXPECT_GE(record["cases"], 6);
  EXPECT_EQ(record["failed"], 0);
  EXPECT_EQ(record["results"].size(), record["cases"]);
}

TEST_F(Command, ListNamesEverythingWithItsDefaults) {
  const json list = json::parse(canzona({"list", "--json", "-"}).out);
  const auto entry = [&](const char* kind, const std::string& name) {
    for (const json& candidate : list[kind]) {
      if (candidate["name"] == name) return candidate;
    }
    return json();
  };
  EXPECT_EQ(entry("models", "qwen3-32b")["parameters"], 32'762'123'264);
  for (const char* name : {"synchronous", "layerwise", "layerwise-lpt", "static"})
    EXPECT_FALSE(entry("strategies", name).is_null()) << name;
  EXPECT_EQ(entry("strategies", "canzona")["options"][0]["name"], "alpha");
  EXPECT_EQ(entry("strategies", "canzona")["options"][0]["default"], "1");
  EXPECT_NE(entry("strategies", "canzona")["citation"].get<std::string>().find("2602.06079"), std::string::npos);
  EXPECT_FALSE(entry("optimizers", "muon").is_null());
}

TEST_F(Command, EverySubcommandHasHelp) {
  for (const char* name : {"list", "plan", "verify", "simulate", "reproduce"}) {
    const Outcome outcome = canzona({name, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("--help"), std::string::npos) << name;
  }
  EXPECT_EQ(canzona({"--help"}).code, 0);
}

TEST_F(Command, UnknownNamesListTheValidOnes) {
  expect_refused({"plan", "--strategy", "magic"},
                 {"strategy", "'magic'", "synchronous", "layerwise-lpt", "canzona", "all"});
  expect_refused({"plan", "--optimizer", "gizmo"}, {"optimizer", "'gizmo'", "muon", "adamw"});
  expect_refused({"plan", "--model", "gpt5"}, {"model", "'gpt5'", "qwen3-32b", "config.json"});
  expect_refused({"plan", "--cost", "beauty"}, {"cost", "'beauty'", "numel, flops, measured"});
  expect_refused({"plan", "--gradient-dtype", "int4"}, {"--gradient-dtype", "'int4'", "fp32"});
  expect_refused({"verify", "--precision", "fp8"}, {"--precision", "'fp8'", "bf16"});
  expect_refused({"plan", "--optimizer-option", "mu=1"}, {"option", "'mu'", "momentum"});
  expect_refused({"plan", "--frobnicate"}, {"--frobnicate"});
  expect_refused({"frobnicate"}, {"command", "'frobnicate'", "list, plan, verify, simulate, reproduce"});
  expect_refused({}, {"subcommand"});
}

TEST_F(Command, NumbersThatAreNoneOrOutOfRangeAreRefused) {
  for (const char* bad : {"0", "-1", "1.5", "nan", "inf", "", "12x", "99999999999999999999"}) {
    expect_refused({"plan", "--dp", bad}, {"--dp", "'" + std::string(bad) + "'", "an integer from 1 to 1048576"});
    expect_refused({"plan", "--tp", bad}, {"--tp"});
  }
  for (const char* bad : {"", "-1", "0", "2.5", "nan"})
    expect_refused({"plan", "--bucket-size", bad}, {"--bucket-size", bad, "an integer from 1"});
  for (const char* bad : {"", "-0.1", "1.1", "nan", "inf", "x"}) {
    expect_refused({"plan", "--alpha", bad}, {"alpha", bad, "a number from 0 to 1"});
    expect_refused({"plan", "--strategy", "static", "--alpha", bad}, {"alpha", bad});
  }
  expect_refused({"plan", "--capacity", "lots"}, {"capacity", "'lots'"});
  expect_refused({"plan", "--capacity", "5:bytes"}, {"capacity", "'5:bytes'", "N:elements, N:flops"});
  expect_refused({"verify", "--iterations", "0"}, {"--iterations", "'0'"});
}

TEST_F(Command, MeshesThatDoNotFitAreRefused) {
  expect_refused({"plan", "--dp", "1048576", "--tp", "8"}, {"1048576", "at most 1048576 ranks"});
  expect_refused({"plan", "--model", "qwen3-32b", "--tp", "16"}, {"tp is 16", "'num_key_value_heads' (8)"});
  expect_refused({"plan", "--model", "qwen3-32b", "--tp", "3"}, {"tp is 3", "divisor"});
}

TEST_F(Command, VerifyRefusesWhatDoesNotFitIntoMemory) {
  expect_refused({"verify", "--model", "qwen3-32b", "--dp", "256"}, {"too large for this machine", "qwen3", "GB"});
  expect_refused({"verify", "--dp", "1048576"}, {"too large for this machine"});
}

TEST_F(Command, BadFilesAreNamed) {
  expect_refused({"plan", "--model", (path / "none.json").string()}, {"none.json", "missing"});
  expect_refused({"plan", "--model", file("cut.json", "{\"model_type\": \"qwen3\", ")}, {"cut.json", "no JSON"});
  expect_refused({"plan", "--model", file("foreign.json", "{\"model_type\": \"llama\"}")},
                 {"foreign.json", "model_type", "llama", "qwen3"});
  expect_refused({"plan", "--cost", "measured"}, {"measured", "seconds for"});
  expect_refused(
      {"plan", "--cost", "measured", "--cost-file", file("cost.toml", "[[matrix]]\nrows=1\ncols=2\nseconds=-1\n")},
      {"cost.toml", "seconds", "-1"});
  expect_refused({"reproduce", "--experiments",
                  file("odd.toml",
                       "title = 'x'\nkind = 'load'\nmodels = ['qwen3-tiny']\nstrategies = ['static']\n"
                       "optimizers = ['muon']\nmeshes = [{dp = 1, tp = 1}]\ncolour = 'red'\n"),
                  "--results", (path / "results").string(), "--report", (path / "report.md").string()},
                 {"odd.toml", "'colour'", "unknown", "title"});
  expect_refused(
      {"reproduce", "--experiments", file("text.toml", "title = "), "--report", (path / "report.md").string()},
      {"text.toml", "line 1"});
  EXPECT_FALSE(fs::exists(path / "results"));
  EXPECT_FALSE(fs::exists(path / "report.md"));
}

TEST_F(Command, AConfigOfOnesOwnWorks) {
  fs::create_directories(path / "my-model");
  fs::copy_file(project_folder() / "experiments/models/qwen3-mini.json", path / "my-model/config.json");
  const Outcome outcome = canzona({"plan", "--model", (path / "my-model/config.json").string(), "--dp", "2", "--tp",
                                   "2", "--strategy", "static", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["model"], "my-model");
}

TEST_F(Command, UnwritableOutputIsRefusedBeforeAnythingIsPrinted) {
  const std::string blocked = file("plain-file", "") + "/out.json";
  expect_refused({"plan", "--model", "qwen3-tiny", "--dp", "1", "--tp", "1", "--json", blocked}, {"--json", blocked});
  expect_refused({"reproduce", "--results", blocked, "--report", (path / "report.md").string()},
                 {"--results", blocked});
  EXPECT_FALSE(fs::exists(path / "report.md"));
  expect_refused({"verify", "--json", path.string()}, {"--json", "a folder"});
}

TEST_F(Command, LinksAreFollowedAndDevicesWrittenTo) {
  const std::vector<std::string> plan{"plan", "--model", "qwen3-tiny", "--dp", "1", "--tp", "1", "--json"};
  const auto with = [&](const fs::path& target) {
    std::vector<std::string> arguments = plan;
    arguments.push_back(target.string());
    return canzona(arguments).code;
  };
  const fs::path real = file("real.json", "old");
  fs::create_symlink(real, path / "link.json");
  EXPECT_EQ(with(path / "link.json"), 0);
  EXPECT_TRUE(fs::is_symlink(path / "link.json"));
  EXPECT_GT(fs::file_size(real), 100u);
  fs::create_symlink("/dev/null", path / "null");
  EXPECT_EQ(with(path / "null"), 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", path / "full");
  EXPECT_EQ(with(path / "full"), 2);
}

TEST_F(Command, OneResultAtMostGoesToStandardOutput) {
  expect_refused({"plan", "--strategy", "static", "--json", "-", "--write-plan", "-"}, {"several options"});
  const Outcome outcome =
      canzona({"plan", "--model", "qwen3-tiny", "--dp", "2", "--tp", "1", "--strategy", "static", "--write-plan", "-"});
  EXPECT_EQ(json::parse(outcome.out)["strategy"], "static");
}

TEST_F(Command, OptionsOfAStrategyCanBeGivenByName) {
  const Outcome outcome =
      canzona({"plan", "--strategy", "canzona", "--strategy-option", "capacity=1000:flops", "--json", "-"});
  EXPECT_EQ(json::parse(outcome.out)["options"]["strategy"]["capacity"], "1000:flops");
  expect_refused({"plan", "--strategy-option", "stride=3"}, {"'stride'", "alpha, cost, capacity"});
  expect_refused({"plan", "--strategy", "static", "--capacity", "lots"}, {"capacity", "'lots'"});
  expect_refused({"plan", "--rank", "banana"}, {"--rank", "'banana'"});
  expect_refused({"plan", "--optimizer-option", "coefficients=junk"}, {"coefficients", "'junk'", "polar_express"});
  expect_refused({"plan", "--cost-file", "x.toml"}, {"--cost-file", "only with --cost measured"});
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
  expect_refused({"simulate", "--dp", "16", "--tp", "8"}, {"16 × 8 = 128 GPUs", "the 256 of cluster h100-256"});
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

TEST_F(Command, ReproduceRefusesAnExperimentBeforeItWritesAnyRecord) {
  const std::string head =
      "title = 'x'\nkind = 'load'\nmodels = ['qwen3-tiny']\nstrategies = ['static']\noptimizers = ['muon']\n";
  const auto refused = [&](const std::string& rest, const std::vector<std::string>& parts) {
    expect_refused({"reproduce", "--experiments", file("e.toml", head + rest), "--results", (path / "results").string(),
                    "--report", (path / "report.md").string()},
                   parts);
    EXPECT_FALSE(fs::exists(path / "results"));
  };
  refused("meshes = [{dp = 1, tp = 1}, {dp = 1, tp = 16}]\n", {"e.toml", "tp is 16"});
  refused("meshes = [{dp = 1048576, tp = 8}]\n", {"e.toml", "1048576 × 8"});
  refused("meshes = [{dp = 1, tp = 1}, {dp = 1, tp = 1}]\n", {"e.toml", "twice"});
  refused("meshes = [{dp = 1, tp = 1}]\ngradient_dtype = 'fp64'\n", {"e.toml", "gradient_dtype", "fp32, bf16"});
}

TEST_F(Command, ReproduceWritesRecordsTablesAndTheReport) {
  const std::string experiment =
      file("small.toml",
           "title = 'Small'\nkind = 'load'\nmodels = ['qwen3-tiny']\nstrategies = ['static', 'canzona']\n"
           "optimizers = ['muon']\nmeshes = [{dp = 4, tp = 2}]\n");
  const Outcome outcome = canzona({"reproduce", "--experiments", experiment, "--results", (path / "results").string(),
                                   "--report", (path / "report.md").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream record(path / "results/small/qwen3-tiny-dp4-tp2-canzona-muon.json");
  EXPECT_EQ(json::parse(record)["strategy"], "canzona");
  EXPECT_TRUE(fs::exists(path / "results/small.csv"));
  EXPECT_TRUE(fs::exists(path / "results/small.md"));
  EXPECT_TRUE(fs::exists(path / "report.md"));
  for (const auto& entry : fs::recursive_directory_iterator(path))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos);
}

}  // namespace
}  // namespace canzona::harness
