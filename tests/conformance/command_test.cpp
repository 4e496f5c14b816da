// The command as a person meets it: exit codes, one-line complaints, JSON, whole files.
#include "tests/conformance/command.hpp"

#include <set>

#include "harness/experiment/paths.hpp"

namespace canzona::harness {
namespace {

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

TEST_F(Command, SplitsAndRefreshesAreCheckedAndReachThePlan) {
  expect_refused({"plan", "--split-qkv", "heads"}, {"--split-qkv", "none, qkv, per-head"});
  expect_refused({"plan", "--split-fc1", "yes"}, {"--split-fc1", "on, off"});
  expect_refused({"plan", "--optimizer", "muon", "--refresh", "staggered"}, {"muon", "'refresh'"});
  expect_refused({"plan", "--optimizer", "soap", "--refresh", "never"}, {"refresh", "together, staggered"});
  expect_refused({"verify", "--optimizer-option", "no_such=1"}, {"no_such"});
  // Blocks are costs of their own, over the same denominator. The busiest GPU holds linear_fc1, 51200 × 5120: with m =
  // 5120 it costs 20·10·m³ + 10·m³ whole, and 2·(20·5·m³ + 10·m³) as gate and up.
  const auto balance = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan", "--model", "qwen3-32b", "--strategy", "canzona", "--json", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json::parse(canzona(arguments).out)["balance"]["gpu"].get<double>();
  };
  EXPECT_EQ(balance({"--split-qkv", "none", "--split-fc1", "off"}), balance({}));
  EXPECT_NEAR(balance({"--split-qkv", "per-head", "--split-fc1", "on"}), balance({}) * 220 / 210, 1e-9);
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
  for (const char* name :
       {"list", "plan", "verify", "simulate", "run", "calibrate", "environment", "collect", "pack", "reproduce"}) {
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
  expect_refused({"frobnicate"},
                 {"command", "'frobnicate'", "list, plan, verify, simulate, run, calibrate, reproduce"});
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
