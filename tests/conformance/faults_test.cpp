// Proof that the net holds: planted faults, each of which must be caught.
#include <gtest/gtest.h>

#include "harness/verify/verify.hpp"
#include "reference/core/error.hpp"
#include "tests/support.hpp"

namespace canzona::reference {
namespace {

using testing_support::tiny_workload;

constexpr int kIterations = 2;
const Precision kPrecision = make_precision(DType::fp64, DType::fp32);

/// What `canzona verify` would say of this run.
std::string failure_of(const Workload& workload, std::vector<Schedule> schedules,
                       std::unique_ptr<Exchange<double>> exchange) {
  DenseReference<double> dense(workload, kPrecision, 1);
  dense.run(kIterations);
  try {
    Executor<double> executor(workload, kPrecision, 1, std::move(schedules), std::move(exchange));
    executor.run(kIterations);
    return harness::compare(executor, dense, workload, kPrecision, kIterations);
  } catch (const PlanError& error) {
    return error.what();
  }
}

std::unique_ptr<Exchange<double>> honest(const Workload& workload) {
  return std::make_unique<Exchange<double>>(workload.mesh.ranks());
}

/// Applies `spoil` to every step of every schedule.
template <class Spoil>
std::vector<Schedule> spoilt_schedules(const Workload& workload, const Spoil& spoil) {
  std::vector<Schedule> schedules = make_schedules(workload);
  for (Schedule& schedule : schedules) spoil(schedule);
  return schedules;
}

class Faults : public ::testing::Test {
 protected:
  Workload workload = tiny_workload({4, 2}, "canzona");
};

TEST_F(Faults, WithoutOneNothingIsReported) {
  EXPECT_EQ(failure_of(workload, make_schedules(workload), honest(workload)), "");
}

TEST_F(Faults, Fc1sPermutationSkippedIsCaught) {
  struct Concatenating : Exchange<double> {
    using Exchange<double>::Exchange;
    void assemble(const double* shard, const Parameter& parameter, int tp, int tp_rank,
                  Matrix<double>& whole) override {
      Parameter contiguous = parameter;
      contiguous.row_segments = {parameter.shape.rows};
      Exchange<double>::assemble(shard, contiguous, tp, tp_rank, whole);
    }
  };
  EXPECT_NE(failure_of(workload, make_schedules(workload), std::make_unique<Concatenating>(workload.mesh.ranks())), "");
}

TEST_F(Faults, ARankMissingFromASumIsCaught) {
  struct Forgetful : Exchange<double> {
    using Exchange<double>::Exchange;
    void reduce(const std::vector<int>& group, const std::vector<const double*>& contributions, std::int64_t count,
                std::size_t receiver, DType type, double* result) override {
      std::vector<const double*> fewer = contributions;
      if (fewer.size() > 1) fewer.back() = fewer.front();
      Exchange<double>::reduce(group, fewer, count, receiver, type, result);
    }
  };
  EXPECT_NE(failure_of(workload, make_schedules(workload), std::make_unique<Forgetful>(workload.mesh.ranks())), "");
}

TEST_F(Faults, BytesSentTwiceAreCaughtAlthoughTheDataIsRight) {
  struct Chatty : Exchange<double> {
    using Exchange<double>::Exchange;
    using Exchange<double>::send;
    void send(Collective collective, int from, int to, const double* source, std::int64_t count, DType type,
              double* target) override {
      Exchange<double>::send(collective, from, to, source, count, type, target);
      if (collective == Collective::scatter_updates)
        Exchange<double>::send(collective, from, to, source, count, type, target);
    }
  };
  const std::string failure =
      failure_of(workload, make_schedules(workload), std::make_unique<Chatty>(workload.mesh.ranks()));
  EXPECT_NE(failure.find("in scatter_updates, the closed form is"), std::string::npos) << failure;
}

TEST_F(Faults, ASuperfluousMatrixUpdateIsCaughtAlthoughTheWeightsAreRight) {
  // What layerwise computes on both ranks of a TP group, held against a plan that computes it once.
  Workload redundant = tiny_workload({2, 2}, "layerwise");
  DenseReference<double> dense(redundant, kPrecision, 1);
  dense.run(kIterations);
  Executor<double> executor(redundant, kPrecision, 1);
  executor.run(kIterations);
  Workload claimed = redundant;
  claimed.plan.matrix_update = MatrixUpdate::hosted;
  EXPECT_EQ(harness::compare(executor, dense, claimed, kPrecision, kIterations), "32 matrix updates, 16 expected");
}

TEST_F(Faults, AMasterWeightThatIsWrongBelowTheModelsRoundingIsCaught) {
  struct Imprecise : Exchange<float> {
    using Exchange<float>::Exchange;
    using Exchange<float>::send;
    void send(Collective collective, int from, int to, const float* source, std::int64_t count, DType type,
              float* target) override {
      Exchange<float>::send(collective, from, to, source, count, type, target);
      // Moves a weight of 0.02 by some 1e-8: above half its fp32 ulp, far below its bf16 ulp.
      if (collective == Collective::scatter_updates) target[count / 2] *= 1 + 0x1p-12f;
    }
  };
  const Precision bf16 = make_precision(DType::bf16, DType::fp32);
  DenseReference<float> dense(workload, bf16, 1);
  dense.run(kIterations);
  Executor<float> executor(workload, bf16, 1, make_schedules(workload),
                           std::make_unique<Imprecise>(workload.mesh.ranks()));
  executor.run(kIterations);
  const std::string failure = harness::compare(executor, dense, workload, bf16, kIterations);
  EXPECT_NE(failure.find("master weight of"), std::string::npos) << failure;
}

TEST_F(Faults, ADenseRunThatIsNotFiniteProvesNothing) {
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {1, 1}, "canzona");
  request.optimizer_options = {{"coefficients", "1e6,1e6,1e6"}};
  const Workload exploding = make_workload(request);
  EXPECT_NE(failure_of(exploding, make_schedules(exploding), honest(exploding)).find("is not finite"),
            std::string::npos);
}

TEST_F(Faults, AGradientThatAnotherRankOwnsIsNoPlausibleNumber) {
  Executor<double> executor(workload, kPrecision, 1);
  executor.run(1);
  for (std::size_t bucket = 0; bucket < workload.plan.buckets.size(); ++bucket) {
    for (const Segment& segment : workload.plan.buckets[bucket]) {
      for (int rank = 0; rank < workload.mesh.ranks(); ++rank) {
        const bool owns = executor.rank(rank).at.dp == segment.owner;
        EXPECT_EQ(std::isnan(executor.rank(rank).gradient[segment.elements.begin]), !owns);
      }
    }
  }
}

TEST_F(Faults, ARankMissingFromTheGlobalNormIsCaughtAlthoughNothingIsClipped) {
  struct Forgetful : Exchange<double> {
    using Exchange<double>::Exchange;
    using Exchange<double>::send;
    ExactSum send(int from, int to, const ExactSum& sum) override {
      const ExactSum sent = Exchange<double>::send(from, to, sum);
      return from == 1 && to == 3 ? ExactSum() : sent;
    }
  };
  const std::string failure =
      failure_of(workload, make_schedules(workload), std::make_unique<Forgetful>(workload.mesh.ranks()));
  EXPECT_NE(failure.find("the global norm is"), std::string::npos) << failure;
}

TEST_F(Faults, ARankThatUpdatesOnAGradientThatOthersRefuseIsCaught) {
  // Rank 3 never hears that a gradient is not finite.
  struct Deaf : Exchange<double> {
    using Exchange<double>::Exchange;
    using Exchange<double>::send;
    ExactSum send(int from, int to, const ExactSum& sum) override {
      const ExactSum sent = Exchange<double>::send(from, to, sum);
      return to == 3 && sent.not_finite() > 0 ? ExactSum() : sent;
    }
  };
  Objective<double> poisoned(1);
  poisoned.poison(1, 0, 0);
  DenseReference<double> dense(workload, kPrecision, poisoned);
  dense.run(kIterations);
  Executor<double> executor(workload, kPrecision, poisoned, make_schedules(workload),
                            std::make_unique<Deaf>(workload.mesh.ranks()));
  executor.run(kIterations);
  EXPECT_EQ(executor.rank(3).steps, 2);
  EXPECT_EQ(executor.rank(2).steps, 1);
  EXPECT_NE(harness::compare(executor, dense, workload, kPrecision, kIterations), "");
}

TEST_F(Faults, SumsInAnotherOrderAreCaught) {
  struct Reversed : Exchange<double> {
    using Exchange<double>::Exchange;
    void reduce(const std::vector<int>& group, const std::vector<const double*>& contributions, std::int64_t count,
                std::size_t receiver, DType type, double* result) override {
      Exchange<double>::reduce(group, {contributions.rbegin(), contributions.rend()}, count, receiver, type, result);
    }
  };
  EXPECT_NE(failure_of(workload, make_schedules(workload), std::make_unique<Reversed>(workload.mesh.ranks())), "");
}

TEST_F(Faults, AWrongOwnerIsCaught) {
  // The reduce-scatter delivers a matrix to the next rank; the schedules still have the old owner update it.
  const std::vector<Schedule> schedules = make_schedules(workload);
  const std::vector<int> owners = matrix_owners(workload.plan, workload.model, workload.buffer);
  const auto matrix = std::find_if(owners.begin(), owners.end(), [](int owner) { return owner >= 0; }) - owners.begin();
  const std::int64_t begin = workload.buffer.slot_of(static_cast<int>(matrix)).elements.begin;
  for (Segment& segment : workload.plan.buckets[workload.buffer.bucket_of(static_cast<int>(matrix))]) {
    if (segment.elements.begin <= begin && begin < segment.elements.end)
      segment.owner = (segment.owner + 1) % workload.mesh.dp;
  }
  EXPECT_NE(failure_of(workload, schedules, honest(workload)), "");
}

TEST_F(Faults, AStaleGatherIsCaught) {
  // Parameters are gathered before the update that they should carry.
  const auto schedules = spoilt_schedules(workload, [](Schedule& schedule) {
    for (Step& step : schedule.steps) {
      if (std::holds_alternative<GatherParameters>(step.action)) step.waits_for.clear();
    }
  });
  EXPECT_NE(failure_of(workload, schedules, honest(workload)), "");
}

TEST_F(Faults, AForwardThatDoesNotWaitForItsParametersIsCaughtInSomeOrder) {
  const auto schedules = spoilt_schedules(workload, [](Schedule& schedule) {
    for (Step& step : schedule.steps) step.waits_for_previous.clear();
  });
  DenseReference<double> dense(workload, kPrecision, 1);
  dense.run(kIterations);
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Executor<double> executor(workload, kPrecision, 1, schedules, honest(workload));
    executor.shuffle(seed);
    executor.run(kIterations);
    caught += harness::compare(executor, dense, workload, kPrecision, kIterations).empty() ? 0 : 1;
  }
  EXPECT_GT(caught, 0);
}

TEST_F(Faults, AMicroGroupSentToTheWrongHostIsCaught) {
  // The shards travel to the other TP rank; the schedules still have the old host compute.
  const std::vector<Schedule> schedules = make_schedules(workload);
  for (auto& groups : workload.plan.micro_groups) {
    for (MicroGroup& group : groups) {
      for (HostedMatrix& member : group.members) member.host = 1 - member.host;
    }
  }
  EXPECT_NE(failure_of(workload, schedules, honest(workload)).find("the gathered gradient"), std::string::npos);
}

TEST_F(Faults, AMatrixUpdatedTwiceIsCaught) {
  // Its shards are gathered, updated and scattered once more; momentum and count advance twice.
  WorkloadRequest request = testing_support::request_of("qwen3-tiny", {1, 1}, "canzona");
  const Workload small = make_workload(request);
  const auto schedules = spoilt_schedules(small, [](Schedule& schedule) {
    const std::vector<Step> once = schedule.steps;
    for (const Step& step : once) {
      const bool is_update = std::holds_alternative<GatherShards>(step.action) ||
                             std::holds_alternative<Update>(step.action) ||
                             std::holds_alternative<ScatterUpdates>(step.action);
      if (is_update) schedule.steps.push_back({step.action, Stream::tp, {}, {}});
    }
  });
  EXPECT_NE(failure_of(small, schedules, honest(small)), "");
}

TEST_F(Faults, RanksThatDisagreeOnACollectiveAreNamed) {
  std::vector<Schedule> schedules = make_schedules(workload);
  for (Step& step : schedules[3].steps) {
    if (auto* reduce = std::get_if<ReduceGradients>(&step.action); reduce != nullptr && reduce->bucket == 0)
      reduce->bucket = 1;
  }
  const std::string failure = failure_of(workload, schedules, honest(workload));
  EXPECT_NE(failure.find("ReduceGradients(0), rank 3 at ReduceGradients(1)"), std::string::npos) << failure;
}

TEST_F(Faults, ARankThatNeverJoinsIsADeadlockThatSaysWhereEveryoneStands) {
  std::vector<Schedule> schedules = make_schedules(workload);
  auto& steps = schedules[2].steps;
  const auto reduce = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    return std::holds_alternative<ReduceGradients>(step.action);
  });
  reduce->waits_for_previous = {};
  reduce->waits_for = {static_cast<int>(steps.size()) - 1};  // on the last step, which waits for this one
  const std::string failure = failure_of(workload, schedules, honest(workload));
  EXPECT_EQ(failure.find("nobody can proceed: "), 0u);
  EXPECT_NE(failure.find("rank 2 at ReduceGradients(0)"), std::string::npos);
}

}  // namespace
}  // namespace canzona::reference
