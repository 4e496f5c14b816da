// What must hold of every strategy, on real buffers.
#include <gtest/gtest.h>

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
    for (int rank = 0; rank < 3; ++rank)
      sum += objective.gradient(objective.gradient_key(0, rank, 0), i, before.data()[i]);
    const float average = sum / 3;
    const float expected = before.data()[i] - (average / 1.0f) / (std::sqrt(average * average) / 1.0f + 1000.0f);
    EXPECT_EQ(dense.master(0).data()[i], expected) << i;
  }
}

TEST(Executor, OneRankIsTheDenseStep) {
  for (const std::string& strategy : strategy_names()) {
    EXPECT_EQ(failure_of<double>(tiny_workload({1, 1}, strategy), kDouble), "") << strategy;
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

TEST(Executor, EveryElementMovesWhenItsGradientIsNotZero) {
  const Workload workload = tiny_workload({4, 2}, "canzona");
  Executor<double> still(workload, kDouble, 1);
  Executor<double> moved(workload, kDouble, 1);
  moved.run(1);
  for (const Slot& slot : workload.buffer.slots) {
    for (std::int64_t i = slot.elements.begin; i < slot.elements.end; ++i) {
      EXPECT_NE(still.rank(5).weights[i], moved.rank(5).weights[i]) << workload.model.parameters[slot.parameter].name;
    }
  }
}

TEST(Executor, OrthogonalizesEachMatrixOnceAStepOnANonRedundantStrategy) {
  // qwen3-tiny: two layers of four matrices.
  for (const char* strategy : {"static", "canzona"}) {
    const Workload workload = tiny_workload({4, 2}, strategy);
    Executor<float> executor(workload, kFloat, 1);
    executor.run(kIterations);
    std::int64_t count = 0;
    for (int rank = 0; rank < workload.mesh.ranks(); ++rank) count += executor.rank(rank).orthogonalizations;
    EXPECT_EQ(count, 8 * kIterations) << strategy;
  }
}

TEST(Executor, TheUpdateDoesNotDependOnTensorParallelism) {
  // The vocabulary is 512 = 128·4, so tp 1, 2 and 4 store the same model; block by block, QKV and gate/up apart.
  const auto train = [](int tp) {
    Workload workload = tiny_workload({2, tp}, "canzona");
    for (Parameter& parameter : workload.model.parameters) {
      if (parameter.name.find("linear_qkv.weight") != std::string::npos) {
        // 8 query groups of [2·8 query rows, 8 key rows, 8 value rows].
        parameter.blocks = {{"q", {}}, {"k", {}}, {"v", {}}};
        for (std::int64_t group = 0; group < 8; ++group) {
          parameter.blocks[0].rows.push_back({32 * group, 32 * group + 16});
          parameter.blocks[1].rows.push_back({32 * group + 16, 32 * group + 24});
          parameter.blocks[2].rows.push_back({32 * group + 24, 32 * group + 32});
        }
      }
      if (parameter.name.find("linear_fc1.weight") != std::string::npos)
        parameter.blocks = {{"gate", {{0, 192}}}, {"up", {{192, 384}}}};
    }
    EXPECT_EQ(failure_of<double>(workload, kDouble), "") << tp;
    DenseReference<double> dense(workload, kDouble, 1);
    dense.run(kIterations);
    return std::pair{dense.master(3), dense.master(7)};
  };
  EXPECT_EQ(train(1), train(2));
  EXPECT_EQ(train(1), train(4));
}

TEST(Executor, CountsTheBytesOfTheClosedForm) {
  // `compare` holds them equal in every case above; here they are not zero.
  const Workload workload = tiny_workload({2, 2}, "canzona");
  Executor<float> executor(workload, kFloat, 1);
  executor.run(1);
  for (const Collective collective : kCollectives)
    EXPECT_GT(executor.traffic().busiest(collective), 0) << name_of(collective);
}

TEST(Verify, HoldsOverTheStandardMeshes) {
  harness::VerifyRequest request;
  request.config = harness::find_model("qwen3-tiny");
  request.strategies = strategy_names();
  for (const auto& optimizer : Optimizers::instance().all()) request.optimizers.push_back(optimizer.name);
  request.meshes = harness::standard_meshes();
  request.precisions = {DType::fp64, DType::fp32, DType::bf16};
  request.settings.bucket_size = 32768;
  request.iterations = 2;
  const auto results = harness::verify(
      request, [] {}, [] { return false; });
  EXPECT_GE(results.size(), 300u);
  for (const auto& result : results) EXPECT_EQ(result.failure, "") << result.what.name();
}

}  // namespace
}  // namespace canzona::reference
