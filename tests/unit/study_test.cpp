// A study from its launches, to the last digit, and what is taken out before it is shared.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/record/archive.hpp"
#include "harness/record/study_record.hpp"
#include "harness/report/study_report.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

/// A launch of one strategy whose optimizer steps took `steps`, in turns of `turns` together, and whose iterations took
/// 10 s more.
ordered_json launch(const std::string& strategy, const std::vector<double>& steps, std::size_t turns) {
  std::vector<double> iterations, trained(steps.size(), 10.0), parts(steps.size(), 0.5);
  for (const double step : steps) iterations.push_back(10 + step);
  ordered_json run{{"file", strategy + ".json"},
                   {"provenance", {{"revision", "r"}, {"machine", {{"processor", "p"}}}}},
                   {"backend", "host"},
                   {"model", "m"},
                   {"mesh", {{"dp", 2}, {"tp", 1}, {"pp", 1}}},
                   {"settings",
                    {{"turns", {{"measured", turns}}},
                     {"tokens", 64},
                     {"sequence", 64},
                     {"precision", "fp32"},
                     {"gradient_dtype", "fp32"}}}};
  ordered_json result{{"strategy", strategy}, {"optimizer", "o"}, {"kind", "measured"}, {"timeline", {{"rank", 0}}}};
  result["seconds"]["forward_backward"]["samples"] = trained;
  result["seconds"]["optimizer_step"]["samples"] = steps;
  result["seconds"]["iteration"]["samples"] = iterations;
  for (const char* part : {"compute", "exposed_communication", "waiting"}) result["parts"][part]["samples"] = parts;
  run["results"].push_back(result);
  return run;
}

TEST(StudyRecords, PoolLaunchesAndCompareStrategies) {
  // Steps of canzona: 1, 2 and 3, 8: their median is 2.5, quartiles 1.75 and 4.25. Synchronous: 10.
  const auto records =
      study_records({launch("canzona", {1, 2}, 2), launch("canzona", {3, 8}, 2), launch("synchronous", {10}, 1)});
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0]["strategy"], "synchronous") << "in the strategies' own order";
  const ordered_json& canzona = records[1];
  EXPECT_EQ(canzona["launches"], 2);
  EXPECT_EQ(canzona["seconds"]["optimizer_step"], 2.5);
  EXPECT_EQ(canzona["spread"]["optimizer_step"], (ordered_json{{"low", 1.75}, {"high", 4.25}, {"samples", 4}}));
  EXPECT_EQ(canzona["seconds"]["iteration"], 12.5);
  EXPECT_EQ(canzona["speedup"]["synchronous"]["optimizer_step"], 4.0);
  EXPECT_EQ(canzona["speedup"]["synchronous"]["iteration"], 1.6);
  EXPECT_FALSE(canzona["speedup"].contains("layerwise")) << "which was not measured";
  EXPECT_FALSE(canzona.contains("predicted"));
}

TEST(StudyRecords, TakeTheMeanOverAPeriodOfRefreshes) {
  // Two turns of three iterations, the last of which refreshes: means 2 and 4.
  const auto records = study_records({launch("canzona", {1, 1, 4, 2, 2, 8}, 2)});
  EXPECT_EQ(records[0]["seconds"]["optimizer_step"], 3.0);
  EXPECT_EQ(records[0]["spread"]["optimizer_step"]["samples"], 2);
}

TEST(StudyRecords, HoldThePredictionAgainstTheMedianOfAllLaunches) {
  ordered_json run = launch("canzona", {2, 4}, 2);
  run["prediction"]["cluster"] = "here";
  run["results"][0]["predicted"]["seconds"] = {{"optimizer_step", 1.5}, {"iteration", 13}};
  const auto records = study_records({run});
  EXPECT_EQ(records[0]["predicted"]["relative_error"]["optimizer_step"], -0.5);
  EXPECT_EQ(records[0]["predicted"]["relative_error"]["iteration"], 0.0);
}

TEST(StudyRecords, RefuseLaunchesUnderOtherConditions) {
  ordered_json other = launch("canzona", {1}, 1);
  other["file"] = "other.json";
  other["settings"]["tokens"] = 128;
  try {
    study_records({launch("canzona", {1}, 1), other});
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("canzona.json and other.json"), std::string::npos) << error.what();
  }
}

TEST(StudyTable, PutsPredictionsBesideWhatWasMeasured) {
  ordered_json run = launch("canzona", {2, 4}, 2);
  run["prediction"]["cluster"] = "here";
  run["results"][0]["predicted"]["seconds"] = {{"optimizer_step", 1.5}, {"iteration", 13}};
  const Table table = study_table(study_records({run}));
  EXPECT_EQ(table.rows[0],
            (std::vector<std::string>{"m", "dp 2 × tp 1", "o", "canzona", "10000.00", "3000.00 (2500.00–3500.00)",
                                      "500.00", "500.00", "500.00", "13000.00 (12500.00–13500.00)", "–", "–", "–", "–",
                                      "1500.00 (-50 %)", "13000.00 (+0 %)"}));
  EXPECT_EQ(table.columns[5].kind, "measured");
  EXPECT_EQ(table.columns[14].kind, "simulated");
}

TEST(Archive, TakesOutWholeWordsOnly) {
  const Replacements names{{"/home/ada/study", "."}, {"/home/ada", "~"}, {"gpu1.cluster", "node0"}, {"gpu1", "node0"}};
  EXPECT_EQ(without("--json /home/ada/study/a.json", names), "--json ./a.json");
  EXPECT_EQ(without("/home/ada/models, /home/adam", names), "~/models, /home/adam");
  EXPECT_EQ(without("gpu1.cluster and gpu1, not gpu12 or my-gpu1", names), "node0 and node0, not gpu12 or my-gpu1");
}

}  // namespace
}  // namespace canzona::harness
