// What must hold of every strategy, on real buffers.
#include <gtest/gtest.h>

#include <set>

#include "harness/verify/verify.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::strategy_names;
using testing_support::tiny_workload;

constexpr int kIterations = 3;

template <class Scalar>
std::string failure_of(const Workload& workload, const Precision& precision, std::uint64_t shuffle = 0) {
  DenseReference<Scalar> dense(workload, precision, 1);
  dense.run(kIterations);
  Executor<Scalar> executor(workload, precision, 1);
  if (shuffle != 0) executor.shuffle(shuffle);
  executor.run(kIterations);
  return harness::compare(executor, dense, workload, precision, kIterations);
}

const Precision kDouble = make_precision(DType::fp64, DType::fp32);
const Precision kFloat = make_precision(DType::fp32, DType::fp32);

TEST(Dense, AverageIsTakenInRankOrder) {
  // Gradients of three ranks whose float sum depends on the order; the first Muon-free step shows them: AdamW with eps
  // so large that U is proportional to the average.
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {3, 1}, "synchronous", "adamw");
  request.optimizer_options = {{"lr", "1"}, {"weight_decay", "0"}, {"eps", "1000"}, {"beta1", "0"}, {"beta2", "0"}};
  const Workload workload = make_workload(request);
  DenseReference<float> dense(workload, kFloat, 5);
  const Matrix<float> before = dense.master(0);
  dense.run(1);
  const Objective<float> objective(5);
  for (std::int64_t i = 0; i < 100; ++i) {
    float sum = 0;
    for (int rank = 0; rank < 3; ++rank) sum += objective.gradients(0, rank, 0, {0, 1}).add_to(0, i, before.data()[i]);
    const float average = sum / 3;
    const float expected = before.data()[i] - (average / 1.0f) / (std::sqrt(average * average) / 1.0f + 1000.0f);
    EXPECT_EQ(dense.master(0).data()[i], expected) << i;
  }
}

// Parameters meet in the global norm alone: once that is given, each is trained as if the others were there.
TEST(Dense, AnExcerptIsTrainedAsInTheWhole) {
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {3, 1}, "canzona", "soap");
  request.training = {.batch = 2, .micro_batches = 1, .clip_norm = 1};
  const Workload workload = make_workload(request);
  Objective<float> poisoned(5);
  poisoned.poison(2, 1, 0);  // an iteration is skipped
  DenseReference<float> whole(workload, kFloat, poisoned);
  std::vector<Agreement> agreements;
  for (int iteration = 0; iteration < 4; ++iteration) {
    whole.run(1);
    agreements.push_back(whole.agreement());
  }
  ASSERT_TRUE(agreements[2].skip);
  ASSERT_LT(agreements[1].factor, 1);
  const Excerpt excerpt{{0, 3, 5}, agreements};
  DenseReference<float> part(workload, kFloat, poisoned, excerpt);
  part.run(4);
  EXPECT_EQ(part.steps(), 3);
  for (int parameter = 0; parameter < static_cast<int>(workload.model.parameters.size()); ++parameter) {
    const bool is_in = parameter == 0 || parameter == 3 || parameter == 5;
    EXPECT_EQ(part.master(parameter), is_in ? whole.master(parameter) : Matrix<float>()) << parameter;
    EXPECT_EQ(part.weights(parameter), is_in ? whole.weights(parameter) : Matrix<float>()) << parameter;
  }
}

TEST(Executor, NoResultDependsOnTheOrderInWhichStreamsAdvance) {
  // Any missing dependency lets some order read a buffer too early or too late.
  for (const std::string& strategy : strategy_names()) {
    const Workload workload = tiny_workload({4, 2}, strategy);
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      EXPECT_EQ(failure_of<float>(workload, kFloat, seed), "") << strategy << ' ' << seed;
  }
}

TEST(Executor, NoResultDependsOnAStreamBeingSlow) {
  // Of 32 ranks most own no matrix, so little holds their other streams back.
  for (const std::string& strategy : strategy_names()) {
    const Workload workload = tiny_workload({16, 2}, strategy);
    DenseReference<float> dense(workload, kFloat, 1);
    dense.run(kIterations);
    for (const Stream stream : {Stream::compute, Stream::dp, Stream::tp}) {
      Executor<float> executor(workload, kFloat, 1);
      executor.starve(stream);
      executor.run(kIterations);
      EXPECT_EQ(harness::compare(executor, dense, workload, kFloat, kIterations), "")
          << strategy << ' ' << name_of(stream);
    }
  }
}

TEST(Executor, PipelinedMicroGroupsEqualTheDenseStep) {
  // A capacity of one element makes every matrix a micro-group, so gathers really run ahead.
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {2, 4}, "canzona");
  request.bucket_size = 32768;
  request.strategy_options = {{"capacity", "1"}};
  const Workload workload = make_workload(request);
  EXPECT_GT(workload.plan.micro_groups[0].size(), 2u);
  for (std::uint64_t seed = 0; seed <= 8; ++seed) EXPECT_EQ(failure_of<float>(workload, kFloat, seed), "") << seed;
}

TEST(Executor, LowPrecisionGradientTransportIsTheSameOnEveryStrategy) {
  for (const DType arithmetic : {DType::bf16, DType::fp16}) {
    const Precision precision = make_precision(arithmetic, DType::bf16);
    for (const std::string& strategy : strategy_names()) {
      EXPECT_EQ(failure_of<float>(tiny_workload({3, 2}, strategy), precision), "") << strategy;
    }
  }
}

TEST(Executor, LowPrecisionsChangeTheResult) {
  const Workload workload = tiny_workload({2, 1}, "canzona");
  const auto trained = [&](const Precision& precision) {
    DenseReference<float> dense(workload, precision, 1);
    dense.run(kIterations);
    return dense.master(1);
  };
  EXPECT_NE(trained(kFloat), trained(make_precision(DType::bf16, DType::fp32)));
  EXPECT_NE(trained(make_precision(DType::bf16, DType::fp32)), trained(make_precision(DType::bf16, DType::bf16)));
  EXPECT_NE(trained(make_precision(DType::bf16, DType::fp32)), trained(make_precision(DType::fp16, DType::fp32)));
}

TEST(Executor, ANormAboveTheLimitScalesTheGradientBeforeMomentum) {
  // AdamW with betas 0 and a huge eps moves by lr·g/eps: the ratio of two moves is the clip factor.
  const auto moved = [](double clip_norm) {
    WorkloadRequest request = testing_support::request_of("qwen3-tiny", {2, 2}, "canzona", "adamw");
    request.optimizer_options = {{"lr", "1"}, {"weight_decay", "0"}, {"eps", "1e6"}, {"beta1", "0"}, {"beta2", "0"}};
    request.training.clip_norm = clip_norm;
    const Workload workload = make_workload(request);
    Executor<double> still(workload, kDouble, 1);
    Executor<double> executor(workload, kDouble, 1);
    executor.run(1);
    const auto& rank = executor.rank(0);
    return std::pair{rank.weights[0] - still.rank(0).weights[0], rank.agreement};
  };
  const auto [whole, unclipped] = moved(0);
  EXPECT_EQ(unclipped.factor, 1);
  const auto [clipped, agreement] = moved(2);
  EXPECT_EQ(agreement.norm, unclipped.norm);
  EXPECT_GT(agreement.norm, 100);
  EXPECT_DOUBLE_EQ(agreement.factor, 2 / (agreement.norm + 1e-6));
  EXPECT_NEAR(clipped / whole, agreement.factor, 1e-5 * agreement.factor);
  EXPECT_EQ(moved(1e9).first, whole);
}

TEST(Executor, TheNormDependsNeitherOnStrategyNorOnMesh) {
  // Gradients differ over dp only; sums are exact, so any cut of the same gradient has the same norm.
  std::set<double> norms;
  for (const std::string& strategy : strategy_names()) {
    for (const int tp : {1, 2, 4}) {
      const Workload workload = tiny_workload({3, tp}, strategy);
      Executor<float> executor(workload, kFloat, 1);
      executor.run(1);
      for (int rank = 0; rank < workload.mesh.ranks(); ++rank) norms.insert(executor.rank(rank).agreement.norm);
    }
  }
  EXPECT_EQ(norms.size(), 1u);
}

TEST(Executor, ANonFiniteGradientLeavesWeightsStateAndStepCountOnEveryRank) {
  for (const auto& optimizer : Optimizers::instance().all()) {
    for (const std::string& strategy : strategy_names()) {
      WorkloadRequest request = testing_support::request_of("qwen3-tiny", {4, 2}, strategy, optimizer.name);
      request.bucket_size = 32768;
      request.optimizer_options = optimizer.verification;
      const Workload workload = make_workload(request);
      Objective<float> poisoned(1);
      poisoned.poison(2, 3, 1);
      Executor<float> executor(workload, kFloat, poisoned);
      executor.run(2);
      const std::vector<float> before = executor.rank(5).weights;
      const auto states = executor.rank(5).matrix_states;
      executor.run(1);
      EXPECT_EQ(executor.rank(5).weights, before);
      for (const auto& [parameter, blocks] : states) {
        for (std::size_t block = 0; block < blocks.size(); ++block) {
          const auto& now = executor.rank(5).matrix_states.at(parameter)[block];
          EXPECT_EQ(now.steps, 2);
          EXPECT_EQ(now.tensors, blocks[block].tensors);
        }
      }
      for (int rank = 0; rank < 8; ++rank) {
        EXPECT_EQ(executor.rank(rank).steps, 2);
        EXPECT_TRUE(executor.rank(rank).agreement.skip);
      }
      executor.run(1);
      DenseReference<float> dense(workload, kFloat, poisoned);
      dense.run(4);
      EXPECT_EQ(harness::compare(executor, dense, workload, kFloat, 4), "") << optimizer.name << ' ' << strategy;
    }
  }
}

TEST(Executor, StaggeredRefreshesEqualTheDenseStepWithTheSameTurns) {
  for (const char* optimizer : {"shampoo", "soap"}) {
    std::vector<std::vector<double>> trained;
    for (const char* refresh : {"together", "staggered"}) {
      WorkloadRequest request = testing_support::request_of("qwen3-tiny", {2, 2}, "canzona", optimizer);
      request.bucket_size = 32768;
      request.optimizer_options = {{"precondition_frequency", "3"}, {"max_precond_dim", "128"}, {"refresh", refresh}};
      const Workload workload = make_workload(request);
      DenseReference<double> dense(workload, kDouble, 1);
      dense.run(7);
      Executor<double> executor(workload, kDouble, 1);
      executor.run(7);
      EXPECT_EQ(harness::compare(executor, dense, workload, kDouble, 7), "") << optimizer << ' ' << refresh;
      trained.push_back(executor.rank(0).weights);
    }
    EXPECT_NE(trained[0], trained[1]) << optimizer;
  }
}

TEST(Executor, CountsTheBytesOfTheClosedForm) {
  // `compare` holds them equal in every case above; here they are not zero.
  const Workload workload = tiny_workload({2, 2}, "canzona");
  Executor<float> executor(workload, kFloat, 1);
  executor.run(1);
  for (const Collective collective : kOptimizerCollectives)
    EXPECT_GT(executor.traffic().busiest(collective), 0) << name_of(collective);
}

}  // namespace
}  // namespace canzona::reference
