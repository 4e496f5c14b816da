// A record, a table row and a bar chart, to the last digit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/record/load_record.hpp"
#include "harness/report/load_report.hpp"
#include "tests/support.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

// qwen3-tiny on one rank: 156,000 parameters, 122,880 of them in matrices, 156,224 elements with padding.
// Newton–Schulz, 20m²n + 10m³ with m = 64: qkv 256 → 23,592,960, proj 128 → 13,107,200, fc1 384 → 34,078,720, fc2 192 →
// 18,350,080; two layers make 178,257,920.
const Point kTiny{testing_support::request_of("qwen3-tiny", {1, 1}, "static"), DType::fp32};

TEST(LoadRecord, HoldsTheNumbersOfThePencil) {
  const ordered_json record = load_record(kTiny);
  EXPECT_EQ(record["parameters"], (ordered_json{{"total", 156'000}, {"matrix", 122'880}}));
  EXPECT_EQ(record["flops"], (ordered_json{{"total", 178'257'920.0},
                                           {"largest_matrix", 34'078'720.0},
                                           {"share", 178'257'920.0},
                                           {"busiest_gpu", 178'257'920.0}}));
  EXPECT_EQ(record["balance"], (ordered_json{{"dp", 1.0}, {"gpu", 1.0}, {"gpu_bound", 1.0}}));
  const auto everywhere = [](std::int64_t bytes) {
    return ordered_json{{"busiest", bytes}, {"mean", static_cast<double>(bytes)}};
  };
  EXPECT_EQ(record["memory"]["model_weights"], everywhere(156'224 * 2));
  EXPECT_EQ(record["memory"]["gradients"], everywhere(156'224 * 4));
  EXPECT_EQ(record["memory"]["master_weights"], everywhere(156'224 * 4));
  EXPECT_EQ(record["memory"]["optimizer_state"], everywhere(122'880 * 4 + (156'000 - 122'880) * 8));
  EXPECT_EQ(record["memory"]["gathered_matrices"], everywhere(384 * 64 * 4));
  EXPECT_EQ(record["provenance"]["backend"], "reference");
}

TEST(LoadRecord, TellsTheBusiestFromTheMean) {
  Point point = kTiny;
  point.request.mesh = {2, 1};
  const ordered_json record = load_record(point);
  const auto elements = record["shard_elements"].get<std::vector<std::int64_t>>();
  ASSERT_NE(elements[0], elements[1]);
  EXPECT_EQ(record["memory"]["master_weights"]["busiest"], 4 * std::max(elements[0], elements[1]));
  EXPECT_EQ(record["memory"]["master_weights"]["mean"], 156'224 * 4 / 2.0);
}

TEST(LoadTable, PutsEachFigureInItsColumn) {
  const ordered_json record =
      ordered_json::parse(R"({"model": "m", "mesh": {"dp": 2, "tp": 3}, "strategy": "s", "optimizer": "o",
      "flops": {"total": 9e12, "busiest_gpu": 4.5e12}, "balance": {"dp": 1.25, "gpu": 3, "gpu_bound": 2},
      "bytes_sent": {"reduce_gradients": {"busiest": 1e6}, "gather_shards": {"busiest": 2e6}, "scatter_updates": {"busiest": 3e6},
                     "gather_parameters": {"busiest": 4e6}}})");
  const Table table = load_table({record});
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"m", "dp 2 × tp 3", "s", "o", "1.25", "3.00", "2.00", "4.50",
                                                     "1.0", "2.0", "3.0", "4.0"}));
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.push_back(column.title);
  EXPECT_EQ(titles, (std::vector<std::string>{"model", "mesh", "strategy", "optimizer", "balance dp", "balance gpu",
                                              "bound", "busiest GPU TFLOP", "reduce gradients MB", "gather shards MB",
                                              "scatter updates MB", "gather parameters MB"}));
}

TEST(LoadTable, ShowsNoBalanceWhereThereIsNoMatrix) {
  Point point = kTiny;
  point.request.optimizer = "adamw";
  EXPECT_EQ(load_table({load_record(point)}).rows[0][5], "–");
}

TEST(LoadBars, AreAsLongAsTheLoad) {
  const ordered_json record = ordered_json::parse(R"({"mesh": {"dp": 2, "tp": 1}, "loads": {"gpu": [4e12, 1e12]},
      "shard_elements": [3000000, 1000000], "flops": {"share": 2.5e12, "busiest_gpu": 4e12}})");
  std::string full, quarter;
  for (int i = 0; i < 50; ++i) full += "█";
  for (int i = 0; i < 13; ++i) quarter += "█";  // 12.5 rounds up
  EXPECT_EQ(load_bars(record),
            "busiest GPU of each DP rank, TFLOP (× an equal share), and elements owned per TP rank [computed]\n"
            "dp 0         " +
                full +
                "     4.00 ( 1.60×)      3.0 M elements\n"
                "dp 1         " +
                quarter + std::string(37, ' ') + "     1.00 ( 0.40×)      1.0 M elements\n");
}

TEST(LoadReport, NamesTheTypeInWhichGradientsTravel) {
  Point point = kTiny;
  point.gradient = DType::bf16;
  Experiment experiment;
  experiment.title = "T";
  experiment.figures = {{"f.svg", "what it shows"}};
  const std::string report = load_report(experiment, {load_record(point)});
  EXPECT_NE(report.find("gradients in bf16"), std::string::npos);
  EXPECT_NE(report.find("![what it shows](f.svg)"), std::string::npos);
}

}  // namespace
}  // namespace canzona::harness
