// Every optimizer against vectors made by running public implementations (tests/data/oracles/README.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/experiment/paths.hpp"
#include "harness/verify/oracle.hpp"
#include "reference/core/error.hpp"

namespace canzona::reference {
namespace {

using nlohmann::json;

std::filesystem::path folder() { return harness::project_folder() / "tests/data/oracles"; }

json read(const std::string& name) {
  std::ifstream file(folder() / name);
  return json::parse(file);
}

class Oracle : public ::testing::TestWithParam<std::string> {};

json index_entry(const std::string& file) {
  const json index = read("index.json");
  for (const json& entry : index["cases"]) {
    if (entry["file"] == file) return entry;
  }
  throw Error("no index entry for " + file);
}

TEST_P(Oracle, IsReproducedInDouble) {
  const harness::OracleResult result = harness::run_oracle(folder() / GetParam(), DType::fp64);
  EXPECT_TRUE(result.worst_error <= index_entry(GetParam())["rel_tol_float64"].get<double>()) << result.worst_error;
}

TEST_P(Oracle, IsReproducedInFloat) {
  const json tolerance = index_entry(GetParam())["rel_tol_float32"];
  if (tolerance.is_null()) GTEST_SKIP() << "the index gives no float32 tolerance";
  const harness::OracleResult result = harness::run_oracle(folder() / GetParam(), DType::fp32);
  EXPECT_TRUE(result.worst_error <= tolerance.get<double>()) << result.worst_error;
}

std::vector<std::string> files() {
  const json index = read("index.json");
  std::vector<std::string> names;
  for (const json& entry : index["cases"]) names.push_back(entry["file"]);
  return names;
}

INSTANTIATE_TEST_SUITE_P(PublicImplementations, Oracle, ::testing::ValuesIn(files()),
                         [](const auto& instance) { return std::filesystem::path(instance.param).stem().string(); });

}  // namespace
}  // namespace canzona::reference
