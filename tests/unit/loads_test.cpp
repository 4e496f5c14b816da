// The figures of the load table that are known beforehand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "reference/plan/load.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

using testing_support::request_of;

struct Known {
  const char* model;
  double petaflop;        // Newton–Schulz of all matrices, five steps
  double atomicity_wall;  // largest matrix ÷ (total ÷ 256)
};
constexpr Known kKnown[] = {{"qwen3-1.7b", 0.067, 4.24},
                            {"qwen3-4b", 0.210, 3.31},
                            {"qwen3-8b", 0.668, 3.42},
                            {"qwen3-14b", 1.568, 3.20},
                            {"qwen3-32b", 3.539, 2.04}};

Loads loads(const std::string& model, Mesh mesh, const std::string& strategy) {
  const Workload workload = make_workload(request_of(model, mesh, strategy));
  return loads_of(workload.plan, workload.model, workload.cost);
}

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

TEST(Loads, TotalIsTheKnownWorkOfEachModel) {
  for (const Known& known : kKnown)
    EXPECT_NEAR(loads(known.model, {1, 1}, "canzona").total / 1e15, known.petaflop, 0.0005);
}

TEST(Loads, CanzonaReachesTheAtomicityWallAt256Ranks) {
  for (const Known& known : kKnown) {
    const Loads canzona = loads(known.model, {32, 8}, "canzona");
    EXPECT_NEAR(rounded(canzona.gpu_balance(), 0.01), known.atomicity_wall, 0.0051) << known.model;
    EXPECT_NEAR(rounded(canzona.gpu_bound(), 0.01), known.atomicity_wall, 0.0051) << known.model;
    EXPECT_LE(canzona.dp_balance(), 1.40) << known.model;
  }
}

TEST(Loads, StartIndexOwnershipDoesNot) {
  EXPECT_EQ(loads("qwen3-1.7b", {32, 8}, "static").gpu_balance(),
            loads("qwen3-1.7b", {32, 8}, "canzona").gpu_balance());
  for (const char* model : {"qwen3-8b", "qwen3-14b", "qwen3-32b"})
    EXPECT_GE(loads(model, {32, 8}, "static").gpu_balance(), 10);
}

TEST(Loads, NoStrategyPassesBelowTheWallAndNoneLosesWork) {
  for (const Known& known : kKnown) {
    for (const std::string& strategy : testing_support::strategy_names()) {
      for (const Mesh mesh : {Mesh{32, 8}, Mesh{64, 4}, Mesh{256, 1}}) {
        const Workload workload = make_workload(request_of(known.model, mesh, strategy));
        const Loads found = loads_of(workload.plan, workload.model, workload.cost);
        EXPECT_GE(found.gpu_balance(), known.atomicity_wall - 0.005);
        double sum = 0;
        for (const double load : found.dp) sum += load;
        EXPECT_EQ(sum, found.total * (workload.plan.replicated() ? mesh.dp : 1)) << strategy;
      }
    }
  }
}

TEST(Loads, SynchronousMakesEveryGpuDoEverything) {
  EXPECT_EQ(loads("qwen3-8b", {32, 8}, "synchronous").gpu_balance(), 256);
}

TEST(Loads, AreThoseOfTheReadmesTable) {
  std::ifstream readme(harness::project_folder() / "README.md");
  const std::string text(std::istreambuf_iterator<char>(readme), {});
  for (const std::string strategy : {"synchronous", "layerwise", "layerwise-lpt", "static", "canzona"}) {
    std::string row = strategy == "canzona" ? "| **canzona** |" : "| " + strategy + " |";
    for (const Known& known : kKnown) {
      const double balance = loads(known.model, {32, 8}, strategy).gpu_balance();
      row += balance == 256 ? " 256 |" : fmt::format(" {:.2f} |", balance);
    }
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace canzona
