// canzona verify.
#include "tests/conformance/command.hpp"

#include "harness/experiment/paths.hpp"

namespace canzona::harness {
namespace {

using Command = Folder;

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

TEST_F(Command, VerifyHoldsAnOptimizerAgainstAFileOfVectors) {
  const std::string vector = (project_folder() / "tests/data/oracles/soap_2x2_f64.json").string();
  const Outcome outcome = canzona({"verify", "--oracle", vector, "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  EXPECT_EQ(record["file"], vector);
  EXPECT_EQ(record["optimizer"], "soap");
  EXPECT_EQ(record["precision"], "fp64");
  EXPECT_EQ(record["errors"].size(), 12u);
  EXPECT_LT(record["worst_error"], 1e-11);
  EXPECT_EQ(canzona({"verify", "--oracle", vector, "--precision", "fp32", "--tolerance", "1e-12"}).code, 1);
  EXPECT_EQ(canzona({"verify", "--oracle", vector, "--precision", "fp32", "--tolerance", "1e-2"}).code, 0);
  expect_refused({"verify", "--oracle", vector, "--precision", "bf16"}, {"'bf16'", "fp64, fp32"});
  expect_refused({"verify", "--tolerance", "1"}, {"--oracle"});
  expect_refused({"verify", "--oracle", "nowhere.json"}, {"nowhere.json"});
}

TEST_F(Command, AVectorsOptionThatNobodyHasIsRefused) {
  std::ifstream original(project_folder() / "tests/data/oracles/soap_2x2_f64.json");
  json vector = json::parse(original);
  const auto refuse = [&](const char* name, const json& value, const std::vector<std::string>& parts) {
    json changed = vector;
    changed["options"][name] = value;
    expect_refused({"verify", "--oracle", file("vector.json", changed.dump())}, parts);
  };
  refuse("foreach", true, {"vector.json", "'foreach'", "max_precond_dim"});
  refuse("merge_dims", true, {"merge_dims", "'on'", "off"});
  refuse("norm", "spectral", {"'norm'", "spectral", "frobenius"});
  refuse("betas", 0.9, {"'betas'", "two numbers"});
  refuse("max_precond_dim", 10.5, {"max_precond_dim", "10.5"});
  json changed = vector;
  changed["options"]["max_precond_dim"] = 10000.0;  // an integer all the same
  EXPECT_EQ(canzona({"verify", "--oracle", file("float.json", changed.dump())}).code, 0);
  changed["steps"] = json::array();
  expect_refused({"verify", "--oracle", file("empty.json", changed.dump())}, {"'steps'", "at least one step"});
  expect_refused({"verify", "--oracle", file("deep.json", std::string(30, '[') + std::string(30, ']'))}, {"8 levels"});
  expect_refused({"verify", "--oracle", path.string()}, {"a file that can be read"});
  vector["steps"][0]["gradient"] = {1, 2};
  expect_refused({"verify", "--oracle", file("short.json", vector.dump())}, {"'gradient'", "2 numbers", "4 of them"});
  expect_refused({"verify", "--oracle", file("none.json", "{}")}, {"'shape'", "missing"});
}

TEST_F(Command, VectorsOfInverseRootsAreCheckedToo) {
  std::ifstream original(project_folder() / "tests/data/oracles/root_higher_order_p2_10x10_f64.json");
  const json vector = json::parse(original);
  json changed = vector;
  changed["options"].erase("epsilon");
  changed["options"]["abs_epsilon"] = 0.0;
  EXPECT_EQ(canzona({"verify", "--oracle", file("abs.json", changed.dump()), "--tolerance", "1e-8"}).code, 0);
  changed = vector;
  changed["options"]["order"] = 2000000000;
  expect_refused({"verify", "--oracle", file("order.json", changed.dump())}, {"'order'", "from 2 to 20"});
  changed = vector;
  changed["shape"] = {20, 5};
  expect_refused({"verify", "--oracle", file("shape.json", changed.dump())}, {"'shape'", "a square"});
}

TEST_F(Command, VectorsOfMuonMustAgreeWithThemselves) {
  std::ifstream original(project_folder() / "tests/data/oracles/muon_kj_1x8_f64.json");
  const json vector = json::parse(original);
  json changed = vector;
  changed["options"]["scale_factor"] = 17;
  expect_refused({"verify", "--oracle", file("scale.json", changed.dump())}, {"'scale_factor'", "17"});
  changed = vector;
  changed["options"]["ns_steps"] = 4;
  expect_refused({"verify", "--oracle", file("steps.json", changed.dump())}, {"'ns_steps'", "'ns_coefficients', 5"});
  changed["options"].erase("ns_steps");
  EXPECT_EQ(canzona({"verify", "--oracle", file("list.json", changed.dump()), "--tolerance", "1e-11"}).code, 0);
}

TEST_F(Command, VerifySkipsAPoisonedIterationOnEveryRankAndSaysSo) {
  const Outcome outcome = canzona({"verify", "--dp", "2", "--tp", "2", "--optimizer", "soap", "--strategy", "canzona",
                                   "--poison", "1", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  for (const json& entry : record["results"]) EXPECT_EQ(entry["skipped"], 1);
  expect_refused({"verify", "--poison", "3"}, {"--poison", "from 0 to 2"});
}

TEST_F(Command, VerifyRefusesWhatDoesNotFitIntoMemory) {
  expect_refused({"verify", "--model", "qwen3-32b", "--dp", "256"}, {"too large for this machine", "qwen3", "GB"});
  expect_refused({"verify", "--dp", "1048576"}, {"too large for this machine"});
}

}  // namespace
}  // namespace canzona::harness
