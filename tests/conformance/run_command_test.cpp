// canzona run and calibrate on ranks that are threads: the record, what is refused, and checks that can fail.
#include "harness/run/run.hpp"

#include <span>

#include "harness/calibrate/calibrate.hpp"
#include "harness/simulate/cluster.hpp"
#include "tests/backend.hpp"
#include "tests/conformance/command.hpp"

namespace canzona::harness {
namespace {

class RunCommand : public Folder {};

TEST_F(RunCommand, RecordsEveryStrategyMeasuredAndChecked) {
  const Outcome outcome = canzona({"run", "--ranks", "4", "--tp", "2", "--steps", "3", "--warmup", "0", "--check",
                                   "--bucket-size", "32768", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  EXPECT_EQ(record["backend"], "host");
  EXPECT_EQ(record["mesh"], json({{"dp", 2}, {"tp", 2}, {"pp", 1}}));
  EXPECT_EQ(record["settings"]["ranks_are"], "threads");
  // 8 matrices; a lead and a measured iteration in each of 3 turns; synchronous on all 4 ranks, the layer-wise ones on
  // both of a TP group, the others once.
  const std::map<std::string, int> copies{
      {"synchronous", 4}, {"layerwise", 2}, {"layerwise-lpt", 2}, {"static", 1}, {"canzona", 1}};
  ASSERT_EQ(record["results"].size(), copies.size());
  for (const json& result : record["results"]) {
    EXPECT_EQ(result["kind"], "measured");
    EXPECT_EQ(result["optimizer"], "muon");
    EXPECT_TRUE(result["check"]["passed"]);
    EXPECT_LE(result["check"]["worst_error"], result["check"]["bound"]);
    EXPECT_EQ(result["orthogonalizations"], 8 * 6 * copies.at(result["strategy"]));
    for (const char* part : {"forward_backward", "optimizer_step", "iteration"}) {
      const json& seconds = result["seconds"][part];
      EXPECT_EQ(seconds["samples"].size(), 3u);
      EXPECT_LE(seconds["low"], seconds["median"]);
      EXPECT_LE(seconds["median"], seconds["high"]);
      EXPECT_GT(seconds["low"], 0);
    }
    for (std::size_t sample = 0; sample < 3; ++sample) {
      const double sum = result["seconds"]["forward_backward"]["samples"][sample].get<double>() +
                         result["seconds"]["optimizer_step"]["samples"][sample].get<double>();
      EXPECT_NEAR(result["seconds"]["iteration"]["samples"][sample], sum, 1e-9);
      const double trained = result["phases"]["forward_backward"]["samples"][sample].get<double>() +
                             result["phases"]["exposed_reduction"]["samples"][sample].get<double>();
      EXPECT_NEAR(result["seconds"]["forward_backward"]["samples"][sample], trained, 1e-9);
    }
    EXPECT_EQ(result["bytes_sent"]["agree_on_gradients"]["mean"], 2 * 560);
    EXPECT_EQ(result["bytes_sent"]["reduce_activations"]["mean"], (2 * 4 + 1) * 64 * 64 * 4);
  }
}

TEST_F(RunCommand, EveryOptimizerStaysWithinItsBound) {
  for (const auto& optimizer : reference::Optimizers::instance().all()) {
    std::vector<std::string> line{"run", "--ranks", "3",      "--steps", "2",           "--warmup",
                                  "0",   "--check", "--json", "-",       "--optimizer", optimizer.name};
    for (const auto& [name, value] : optimizer.verification) {
      line.insert(line.end(), {"--optimizer-option", name + '=' + value});
    }
    const Outcome outcome = canzona(line);
    EXPECT_EQ(outcome.code, 0) << optimizer.name << outcome.err << outcome.out;
  }
}

// Products, updates and weights in two bytes, masters in fp32: rounded as the reference rounds, within what so many
// roundings may do.
TEST_F(RunCommand, EveryOptimizerStaysWithinItsBoundInTwoBytes) {
  for (const auto& optimizer : reference::Optimizers::instance().all()) {
    for (const char* precision : {"bf16", "fp16"}) {
      std::vector<std::string> line{"run",         "--ranks",      "4",           "--tp",    "2",      "--steps",
                                    "2",           "--warmup",     "0",           "--check", "--json", "-",
                                    "--optimizer", optimizer.name, "--precision", precision};
      for (const auto& [name, value] : optimizer.verification)
        line.insert(line.end(), {"--optimizer-option", name + '=' + value});
      const Outcome outcome = canzona(line);
      ASSERT_EQ(outcome.code, 0) << optimizer.name << ' ' << precision << outcome.err << outcome.out;
      const json record = json::parse(outcome.out);
      EXPECT_EQ(record["settings"]["precision"], precision);
      for (const json& result : record["results"]) {
        EXPECT_LT(result["check"]["bound"], 0.3) << optimizer.name << ": would let pass another matrix";
        // Updates travel in two bytes, and so do weights.
        if (result["strategy"] == "canzona") {
          EXPECT_EQ(result["bytes_sent"]["gather_shards"]["mean"],
                    2 * result["bytes_sent"]["scatter_updates"]["mean"].get<double>());
        }
      }
    }
  }
}

TEST_F(RunCommand, MomentumIsKeptInBf16AsInTheReference) {
  const Outcome outcome = canzona({"run", "--ranks", "4", "--tp", "2", "--steps", "3", "--warmup", "0", "--check",
                                   "--optimizer-option", "momentum_dtype=bf16"});
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
}

// Rounded before the sum and after it, over every strategy's collectives; micro-batches and blocks besides.
TEST_F(RunCommand, GradientsTravelInBf16AsInTheReference) {
  const Outcome outcome = canzona({"run",
                                   "--ranks",
                                   "6",
                                   "--tp",
                                   "2",
                                   "--steps",
                                   "2",
                                   "--warmup",
                                   "0",
                                   "--check",
                                   "--gradient-dtype",
                                   "bf16",
                                   "--batch",
                                   "4",
                                   "--micro-batches",
                                   "2",
                                   "--split-qkv",
                                   "per-head",
                                   "--split-fc1",
                                   "on",
                                   "--bucket-size",
                                   "32768",
                                   "--json",
                                   "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const json fp32 = json::parse(canzona({"run", "--ranks", "6", "--tp", "2", "--steps", "1", "--warmup", "0",
                                         "--bucket-size", "32768", "--json", "-"})
                                    .out);
  const json bf16 = json::parse(outcome.out);
  for (std::size_t index = 0; index < 5; ++index) {
    EXPECT_EQ(2 * bf16["results"][index]["bytes_sent"]["reduce_gradients"]["mean"].get<double>(),
              fp32["results"][index]["bytes_sent"]["reduce_gradients"]["mean"].get<double>());
  }
}

TEST_F(RunCommand, EveryVariantStaysWithinTheBound) {
  for (const char* optimizer : {"muon", "normuon"}) {
    for (const char* variant : {"symmetric", "dense", "gram"}) {
      const Outcome outcome = canzona({"run", "--ranks", "2", "--optimizer", optimizer, "--variant", variant,
                                       "--strategy", "canzona", "--steps", "2", "--warmup", "0", "--check"});
      EXPECT_EQ(outcome.code, 0) << optimizer << ' ' << variant << outcome.out << outcome.err;
    }
  }
}

TEST_F(RunCommand, WritesATraceOfAllRanks) {
  const std::string trace = (path / "trace.json").string();
  const Outcome outcome =
      canzona({"run", "--ranks", "2", "--strategy", "canzona", "--steps", "1", "--warmup", "0", "--trace", trace});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream file(trace);
  const json events = json::parse(file)["traceEvents"];
  std::map<int, int> updates;  // by process
  for (const json& event : events) {
    if (event["name"].get<std::string>().starts_with("Update(")) ++updates[event["pid"]];
  }
  EXPECT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0] + updates[1], 8);
}

TEST_F(RunCommand, RefusesWhatIsNotAllowed) {
  expect_refused({"run", "--ranks", "0"}, {"--ranks", "'0'"});
  expect_refused({"run", "--ranks", "4", "--dp", "3"}, {"the mesh", "dp 3 × tp 1 = 3 ranks", "4"});
  expect_refused({"run", "--ranks", "2", "--backend", "tpu"}, {"--backend", "'tpu'", "host"});
  expect_refused({"run", "--ranks", "2", "--backend-option", "uneven=padded"}, {"backend host", "uneven"});
  expect_refused({"run", "--ranks", "2", "--steps", "0"}, {"--steps", "'0'"});
  expect_refused({"run", "--ranks", "2", "--overlap", "maybe"}, {"--overlap", "'maybe'", "on, off"});
  expect_refused({"run", "--ranks", "2", "--graphs", "maybe"}, {"--graphs", "'maybe'", "on, off"});
  expect_refused({"run", "--ranks", "2", "--graphs", "on"}, {"--graphs of backend host", "'on'", "off"});
  expect_refused({"run", "--ranks", "2", "--deadline", "-1"}, {"--deadline", "'-1'"});
  expect_refused({"run", "--ranks", "2", "--batch", "3", "--micro-batches", "2"}, {"micro-batches", "divisor"});
  expect_refused({"run", "--ranks", "2", "--trace", (path / "t.json").string()}, {"--strategy", "one strategy"});
  expect_refused({"run", "--ranks", "2", "--gradient-dtype", "fp16"}, {"--gradient-dtype", "fp16"});
  expect_refused({"run", "--ranks", "2", "--variant", "fast"}, {"variant of muon", "'fast'", "symmetric, dense, gram"});
  expect_refused({"run", "--ranks", "2", "--optimizer", "soap", "--variant", "gram"}, {"variant of soap", "'gram'"});
  expect_refused({"run", "--ranks", "2", "--predict", "h100-256"}, {"--precision", "'fp32'", "h100-256"});
  expect_refused({"run", "--ranks", "2", "--sequence", "48"}, {"--tokens", "64", "--sequence", "48"});
  expect_refused({"run", "--ranks", "2", "--tokens", "5000"}, {"--tokens", "5000", "--sequence", "4096"});
  expect_refused({"calibrate", "--ranks", "2", "--sequence", "0"}, {"--sequence", "'0'"});
}

TEST_F(RunCommand, WhatIsCalibratedPredictsARun) {
  const std::string cluster = (path / "here.toml").string();
  const Outcome calibrated = canzona({"calibrate", "--ranks", "2", "--rounds", "1", "--output", cluster});
  ASSERT_EQ(calibrated.code, 0) << calibrated.err;
  EXPECT_EQ(find_cluster(cluster).gpus, 2);
  const Outcome outcome =
      canzona({"run", "--ranks", "2", "--steps", "2", "--warmup", "0", "--predict", cluster, "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  for (const json& result : record["results"]) {
    EXPECT_EQ(result["predicted"]["kind"], "simulated");
    EXPECT_GT(result["predicted"]["seconds"]["iteration"], 0);
  }
  EXPECT_GE(record["prediction"]["median_relative_error"]["optimizer_step"], 0);
  expect_refused({"run", "--ranks", "2", "--predict", cluster, "--precision", "bf16"}, {"--precision", "bf16", "fp32"});
  expect_refused({"run", "--ranks", "1", "--predict", cluster}, {"the mesh", "1 × 1 = 1", "the 2 of cluster here"});
  const Outcome simulated =
      canzona({"simulate", "--cluster", cluster, "--model", "qwen3-tiny", "--dp", "2", "--tp", "1", "--bucket-size",
               "1000000", "--tokens-per-gpu", "64", "--sequence", "64", "--strategy", "canzona", "--json", "-"});
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_EQ(json::parse(simulated.out)["seconds"]["iteration"],
            record["results"][4]["predicted"]["seconds"]["iteration"]);
}

TEST_F(RunCommand, OneRankIsCalibratedWithoutANetwork) {
  const std::string file = (path / "here.toml").string();
  ASSERT_EQ(canzona({"calibrate", "--ranks", "1", "--rounds", "1", "--output", file}).code, 0);
  const Outcome outcome = canzona({"run", "--ranks", "1", "--strategy", "canzona", "--steps", "1", "--warmup", "0",
                                   "--predict", file, "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(json::parse(outcome.out)["results"][0]["predicted"]["seconds"]["iteration"], 0);
}

TEST_F(RunCommand, WhatIsCalibratedInTwoBytesPredictsARunInThem) {
  const std::string file = (path / "here.toml").string();
  const std::vector<std::string> common{"--ranks", "2", "--precision", "bf16", "--optimizer", "soap"};
  const auto with = [&](std::vector<std::string> line) {
    line.insert(line.end(), common.begin(), common.end());
    return canzona(line);
  };
  const Outcome calibrated = with({"calibrate", "--rounds", "1", "--output", file});
  ASSERT_EQ(calibrated.code, 0) << calibrated.err;
  const Cluster cluster = find_cluster(file);
  EXPECT_EQ(cluster.weights, DType::bf16);
  EXPECT_FALSE(cluster.gpu.rates.plain.empty()) << "of forward and backward";
  EXPECT_FALSE(cluster.gpu.fp32_rates.plain.empty()) << "of SOAP's rotations";
  EXPECT_FALSE(cluster.gpu.fp32_rates.symmetric.empty()) << "of its factors";
  const Outcome outcome =
      with({"run", "--strategy", "canzona", "--steps", "1", "--warmup", "0", "--predict", file, "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(json::parse(outcome.out)["results"][0]["predicted"]["seconds"]["iteration"], 0);
  expect_refused({"run", "--ranks", "2", "--predict", file}, {"--precision", "'fp32'", "bf16"});
}

// 3 of each kind of qwen3-tiny's parameters: 15 of its 18, of which it has 2 or 4 of a kind, or 1.
TEST_F(RunCommand, ChecksASampleOnTheCoresAndInFp64OnTheDevice) {
  struct Case {
    const char *optimizer, *precision, *flops;
  };
  const std::vector<Case> all{
      {"muon", "fp32", "2e7"}, {"soap", "fp32", "1e8"}, {"muon", "bf16", "2e7"}, {"shampoo", "bf16", "1e8"}};
  for (const Case& own : std::span(all).first(testing_support::kHasPlainProducts ? 1 : all.size())) {
    const Outcome outcome = canzona({"run",
                                     "--ranks",
                                     "4",
                                     "--tp",
                                     "2",
                                     "--steps",
                                     "1",
                                     "--warmup",
                                     "0",
                                     "--check=3",
                                     "--check-flops",
                                     own.flops,
                                     "--optimizer",
                                     own.optimizer,
                                     "--precision",
                                     own.precision,
                                     "--bucket-size",
                                     "32768",
                                     "--json",
                                     "-"});
    ASSERT_EQ(outcome.code, 0) << own.optimizer << outcome.err << outcome.out;
    const json record = json::parse(outcome.out);
    for (const json& result : record["results"]) {
      const json& check = result["check"];
      EXPECT_TRUE(check["passed"]) << own.optimizer << result["strategy"] << check;
      EXPECT_EQ(check["parameters"], 15);
      EXPECT_EQ(check["of"], 18);
      EXPECT_EQ(check["on_device_in_fp64"], 8);
      EXPECT_EQ(check["left_out"], json::object());
    }
  }
}

TEST_F(RunCommand, SaysWhatOfASampleTakesTooLongAndFailsWhereNothingIsLeft) {
  const std::vector<std::string> soap{"run",     "--ranks", "2",        "--tp", "2",         "--strategy",  "canzona",
                                      "--steps", "1",       "--warmup", "0",    "--check=1", "--optimizer", "soap"};
  std::vector<std::string> some = soap;
  some.insert(some.end(), {"--check-flops", "1e7"});
  const Outcome partly = canzona(some);
  EXPECT_EQ(partly.code, 0) << partly.err << partly.out;
  EXPECT_NE(partly.out.find("Held against one device: 3 of 18 parameters"), std::string::npos) << partly.out;
  EXPECT_NE(partly.out.find("linear_fc1.weight, which would take"), std::string::npos) << partly.out;
  std::vector<std::string> none = soap;
  none.insert(none.end(), {"--check-flops", "0"});
  EXPECT_EQ(canzona(none).code, 1);
  expect_refused({"run", "--ranks", "2", "--check=0"}, {"--check", "'0'", "1 to"});
  expect_refused({"run", "--ranks", "2", "--check=some"}, {"--check", "'some'"});
}

TEST_F(RunCommand, PredictsItselfFromWhatItMeasuresBetweenTurns) {
  const Outcome outcome = canzona({"run", "--ranks", "2", "--tp", "2", "--steps", "2", "--warmup", "0", "--predict",
                                   "self", "--check", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const json record = json::parse(outcome.out);
  EXPECT_EQ(record["prediction"]["cluster"], "self");
  for (const json& result : record["results"]) {
    EXPECT_EQ(result["predicted"]["kind"], "simulated");
    EXPECT_GT(result["predicted"]["seconds"]["optimizer_step"], 0);
  }
  const Outcome low = canzona({"run", "--ranks", "2", "--strategy", "canzona", "--steps", "1", "--warmup", "0",
                               "--predict", "self", "--precision", "bf16", "--json", "-"});
  ASSERT_EQ(low.code, 0) << low.err;
  EXPECT_GT(json::parse(low.out)["results"][0]["predicted"]["seconds"]["optimizer_step"], 0);
}

// Two ranks, one collective of a DP group: it begins when the later one has come to it.
TEST(MeasuredTimeline, ACollectiveBeginsWhenTheLastRankHasComeToIt) {
  const Workload workload = make_workload(testing_support::request_of("qwen3-tiny", {2, 1}, "canzona"));
  MeasuredTimes times(2);
  std::size_t reduction = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const Schedule schedule = make_schedule(workload.plan, workload.model, workload.buffer, rank);
    for (int iteration = 0; iteration < 2; ++iteration) {
      auto& steps = times[static_cast<std::size_t>(rank)].emplace_back();
      for (std::size_t index = 0; index < schedule.steps.size(); ++index) {
        const double begin = 100 * iteration + static_cast<double>(index) + 0.25 * rank;
        steps.push_back({5000 + begin, 5000 + begin + 0.5});
        if (std::holds_alternative<ReduceGradients>(schedule.steps[index].action)) reduction = index;
      }
    }
  }
  const Timeline timeline = measured_timeline(workload, times);
  const auto at = static_cast<Nanoseconds>(reduction) * 1'000'000'000;
  EXPECT_EQ(timeline.steps[0][0][reduction].ready, at);
  EXPECT_EQ(timeline.steps[0][0][reduction].begin, at + 250'000'000);
  EXPECT_EQ(timeline.steps[1][0][reduction].begin, at + 250'000'000);
  EXPECT_EQ(timeline.steps[0][0][reduction].end, at + 500'000'000);
  EXPECT_EQ(timeline.steps[0][0][0].begin, 0);
  // Whatever ends last ends 100 s later in the next iteration.
  const StepLatency latency = step_latency(timeline, workload.plan, 1);
  EXPECT_NEAR(latency.iteration, 100, 1e-9);
  const Phases phases = phases_of(timeline, workload.plan, 1);
  EXPECT_NEAR(phases.forward_backward + phases.exposed_reduction, latency.forward_backward, 1e-9);
}

TEST(Spread, IsTheMedianAndTheQuartiles) {
  const Spread spread = spread_of({5, 1, 2, 4, 3});
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.low, 2);
  EXPECT_EQ(spread.high, 4);
  EXPECT_EQ(spread_of({1, 2}).median, 1.5);
}

}  // namespace
}  // namespace canzona::harness
