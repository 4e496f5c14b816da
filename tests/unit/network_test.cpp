// The clusters' figures and the network model, by hand.
#include "harness/simulate/network.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/simulate/durations.hpp"
#include "reference/core/error.hpp"
#include "tests/support.hpp"

namespace canzona::harness {
namespace {

Cluster h100(int gpus) {
  Cluster cluster = find_cluster("h100-256");
  cluster.gpus = gpus;
  return cluster;
}

TEST(NcclNetwork, AnAllGatherInsideANodeIsLatencyPlusBytesOverNvlink) {
  // 8 GB over 8 GPUs, Simple: 8.4 + 7·3.4 = 32.2 µs, and 7 GB at 0.79·450 GB/s.
  const auto network = nccl_network(h100(64));
  const std::vector<double> shares(8, 1e9);
  EXPECT_NEAR(network->all_gather(shares, {8, 1}, Uneven::per_owner), 32.2e-6 + 7e9 / (0.79 * 450e9), 1e-12);
}

TEST(NcclNetwork, ASmallAllReduceTakesTheLowLatencyProtocol) {
  // 8 bytes over 8 GPUs, LL: 6.6 + 14·0.6 = 15 µs.
  EXPECT_NEAR(nccl_network(h100(64))->all_reduce(8, {8, 1}), 15e-6, 1e-9);
}

TEST(NcclNetwork, ADataParallelRingWithOneGpuANodeHasOneNic) {
  // 32 ranks on 32 nodes, 3.2 GB even: Simple, 8.4 + 31·14 = 442.4 µs, 31/32 of it at 0.923·50 GB/s.
  const auto network = nccl_network(h100(64));
  const std::vector<double> shares(32, 1e8);
  EXPECT_NEAR(network->reduce_scatter(shares, {32, 32}, Uneven::per_owner), 442.4e-6 + 3.1e9 / (0.923 * 50e9), 1e-12);
}

TEST(NcclNetwork, UnevenReduceScattersAddABaseForEachOwner) {
  // Shares 3, 0, 1 GB on 3 nodes: the ring fills in 2·14 µs; two reduces of 8.4 µs; 4 GB at the NIC's rate.
  const auto network = nccl_network(h100(64));
  const double rate = find_cluster("h100-256").efficiency_of_large(3) * 50e9;
  EXPECT_NEAR(network->reduce_scatter({3e9, 0, 1e9}, {3, 3}, Uneven::per_owner), (28 + 2 * 8.4) * 1e-6 + 4e9 / rate,
              1e-12);
  // Padded: 9 GB in even shares. Straight: the owner of 3 GB receives it twice.
  EXPECT_NEAR(network->reduce_scatter({3e9, 0, 1e9}, {3, 3}, Uneven::padded), (8.4 + 28) * 1e-6 + 6e9 / rate, 1e-12);
  EXPECT_NEAR(network->reduce_scatter({3e9, 0, 1e9}, {3, 3}, Uneven::send_recv), (8.4 + 14) * 1e-6 + 6e9 / rate, 1e-12);
}

TEST(NcclNetwork, IsNeverFasterThanTheMeasuredEfficiencyAtThatSize) {
  // A ring with one GPU and one NIC a node moves per ring what eight of them move together: 32 MiB there is 256 MiB in
  // the table, 0.387 of nominal on 32 nodes. The latency model alone gives 442.4 µs + 31/32·32 MiB ÷ (0.923·50 GB/s)
  // = 1.147 ms.
  const double bytes = 32 << 20;
  const std::vector<double> shares(32, bytes / 32);
  const auto network = nccl_network(find_cluster("h100-256"));
  EXPECT_NEAR(network->all_gather(shares, {32, 32}, Uneven::per_owner), bytes * 31 / 32 / (0.387 * 50e9), 1e-9);
  // 8 GPUs of one node, 64 MiB: 0.65 of 450 GB/s.
  EXPECT_NEAR(network->all_gather(std::vector<double>(8, 8 << 20), {8, 1}, Uneven::per_owner),
              (64 << 20) * 7.0 / 8 / (0.65 * 450e9), 1e-9);
}

TEST(Efficiency, IsInterpolatedInBothLogarithms) {
  const Cluster cluster = find_cluster("h100-256");
  EXPECT_NEAR(cluster.efficiency_at(16 << 20, 1), 0.45, 1e-12);
  EXPECT_NEAR(cluster.efficiency_at(32 << 20, 1), 0.55, 1e-12);
  EXPECT_NEAR(cluster.efficiency_at(1 << 20, 64), 0.044, 1e-12);
  EXPECT_NEAR(cluster.efficiency_of_large(32), 0.923, 1e-12);
}

TEST(Nanoseconds, OfAStepThatTakesMoreThanADayAreRefused) {
  EXPECT_EQ(nanoseconds(1.5e-9), 2);
  EXPECT_THROW(nanoseconds(1e6), InputError);
  EXPECT_THROW(nanoseconds(NAN), InputError);
}

TEST(ProductRate, IsInterpolatedBySizeOrTakenFromTheNearestShape) {
  const std::vector<ProductRate> cubes{{1, 1, 1, 10}, {100, 100, 100, 30}};
  EXPECT_NEAR(product_rate(cubes, 10, 10, 10), 20, 1e-12);
  EXPECT_NEAR(product_rate(cubes, 1, 10, 100), 20, 1e-12);
  const std::vector<ProductRate> shapes{{64, 64, 64, 1}, {64, 64, 4096, 2}, {4096, 64, 64, 3}};
  EXPECT_EQ(product_rate(shapes, 70, 60, 3000), 2);
  EXPECT_EQ(product_rate(shapes, 3000, 60, 70), 3);
}

TEST(CommunicationGroup, OfDataParallelRanksSpansTheNodes) {
  EXPECT_EQ(dp_group({32, 8}, 8).nodes, 32);
  EXPECT_EQ(dp_group({64, 4}, 8).nodes, 32);
  EXPECT_EQ(dp_group({256, 1}, 8).nodes, 32);
  EXPECT_EQ(dp_group({8, 1}, 8).nodes, 1);
  EXPECT_EQ(tp_group({32, 8}, 8).nodes, 1);
  EXPECT_EQ(tp_group({1, 16}, 8).nodes, 2);
  EXPECT_EQ(tp_group({4, 4}, 6).nodes, 2);  // ranks 4…7 lie on both sides of a border
}

TEST(Interpolation, IsLinearInTheLogarithmAndFlatBeyondTheEnds) {
  const std::vector<std::pair<double, double>> points{{1, 10}, {100, 30}};
  EXPECT_EQ(interpolate(points, 0.1), 10);
  EXPECT_NEAR(interpolate(points, 10), 20, 1e-12);
  EXPECT_EQ(interpolate(points, 1e6), 30);
}

Gpu gpu_of(double flops_per_second) {
  Gpu gpu;
  gpu.launch_seconds = 1e-6;
  gpu.memory_bytes_per_second = 1e12;
  gpu.rates.plain = {{1, 1, 1, flops_per_second}};
  gpu.fp32_product_fraction = 0.5;
  return gpu;
}

TEST(Factorization, WithoutATableIsColumnsAndPassesAndProducts) {
  // n = 3000: 6000 kernels of 1 µs; eigh passes over 4·n³/3 = 36·10⁹ bytes and leaves (9 − 4/3)·27·10⁹ FLOPs at
  // half of 10¹² FLOP/s; QR is 8/3·27·10⁹ FLOPs at that rate.
  const Gpu gpu = gpu_of(1e12);
  EXPECT_NEAR(factorization_seconds(gpu, {Factorization::Kind::eigh, 3000, 1}), 6e-3 + 36e-3 + 207e9 / 0.5e12, 1e-9);
  EXPECT_NEAR(factorization_seconds(gpu, {Factorization::Kind::qr, 3000, 2}), 2 * (6e-3 + 72e9 / 0.5e12), 1e-9);
}

TEST(Factorization, OfATableIsAPowerLawBetweenItsSizesAndCubicAbove) {
  Gpu gpu = gpu_of(1e12);
  gpu.factorization_seconds[Factorization::Kind::eigh] = {{1000, 0.01}, {4000, 0.16}};
  const auto eigh = [&](std::int64_t n) { return factorization_seconds(gpu, {Factorization::Kind::eigh, n, 1}); };
  EXPECT_NEAR(eigh(1000), 0.01, 1e-12);
  EXPECT_NEAR(eigh(2000), 0.04, 1e-12);
  EXPECT_NEAR(eigh(8000), 8 * 0.16, 1e-12);
  EXPECT_NEAR(eigh(500), 0.01, 1e-12);
}

TEST(Factorization, TakesTheRateOfFp32WhereThereIsOne) {
  Gpu gpu = gpu_of(1e12);
  gpu.fp32_rates.plain = {{1, 1, 1, 0.25e12}};
  EXPECT_NEAR(factorization_seconds(gpu, {Factorization::Kind::qr, 3000, 1}), 6e-3 + 72e9 / 0.25e12, 1e-9);
}

TEST(Durations, OfProductsTakeTheRatesOfTheirType) {
  const WorkloadRequest request = testing_support::request_of("qwen3-8b", {32, 8}, "synchronous", "soap");
  const Workload workload = make_workload(request);
  Cluster cluster = h100(256);
  const auto network = free_network();
  const auto seconds = [&](DType type, bool is_symmetric) {
    const Durations durations(request.config, workload, cluster, *network, {}, {}, Uneven::per_owner);
    return durations.product_seconds(4096, 4096, 4096, type, is_symmetric) - cluster.gpu.launch_seconds;
  };
  constexpr double kFlops = 2.0 * 4096 * 4096 * 4096;
  cluster.gpu.rates = {{{1, 1, 1, 8e14}}, {}};
  cluster.gpu.fp32_product_fraction = 0.5;
  EXPECT_NEAR(seconds(DType::bf16, false), kFlops / 8e14, 1e-9);
  EXPECT_NEAR(seconds(DType::fp32, true), kFlops / 4e14, 1e-9) << "a fraction";
  cluster.gpu.fp32_rates = {{{1, 1, 1, 1e14}}, {{1, 1, 1, 2e14}}};
  EXPECT_NEAR(seconds(DType::bf16, true), kFlops / 8e14, 1e-9);
  EXPECT_NEAR(seconds(DType::fp32, false), kFlops / 1e14, 1e-9);
  EXPECT_NEAR(seconds(DType::fp32, true), kFlops / 2e14, 1e-9);
}

TEST(Confidence, IsLowWhereAFactorizationWasNotMeasured) {
  Cluster cluster = h100(256);
  const auto low = [&](const char* optimizer) {
    return is_low_confidence(make_workload(testing_support::request_of("qwen3-8b", {32, 8}, "canzona", optimizer)),
                             cluster);
  };
  EXPECT_FALSE(low("muon"));
  EXPECT_TRUE(low("shampoo"));
  EXPECT_TRUE(low("soap"));
  cluster.gpu.factorization_seconds[Factorization::Kind::qr] = {{1024, 0.01}};
  EXPECT_TRUE(low("soap"));  // 4096 and 6144 lie outside
  cluster.gpu.factorization_seconds[Factorization::Kind::qr] = {{1024, 0.01}, {16384, 1}};
  EXPECT_TRUE(low("shampoo"));
  EXPECT_FALSE(low("soap"));
}

TEST(Durations, OfARefreshAreAddedWhenItsTurnComes) {
  WorkloadRequest request = testing_support::request_of("qwen3-8b", {32, 8}, "synchronous", "soap");
  request.optimizer_options = {{"precondition_frequency", "4"}, {"refresh", "staggered"}};
  const Workload workload = make_workload(request);
  const Cluster cluster = h100(256);
  const auto network = free_network();
  const Durations durations(request.config, workload, cluster, *network, {}, {}, Uneven::per_owner);
  for (std::size_t parameter = 0; parameter < workload.turns.size(); ++parameter) {
    if (workload.model.parameters[parameter].routing != Routing::matrix) continue;
    const auto update = [&](std::int64_t iteration) {
      return durations.of(Update{static_cast<int>(parameter)}, 0, iteration);
    };
    const MatrixCost refresh = workload.cost.refresh_of(workload.model.parameters[parameter]);
    const std::int64_t due = (8 - workload.turns[parameter][0]) % 4;
    EXPECT_EQ(update(due), update(due + 1) + nanoseconds(durations.seconds_of(refresh)));
    EXPECT_EQ(update(due + 1), update(due + 2));
    EXPECT_EQ(update(due), update(due + 4));
  }
}

TEST(Durations, MicroBatchesShareTheTokensOfAnIteration) {
  WorkloadRequest request = testing_support::request_of("qwen3-8b", {32, 8}, "canzona");
  const Cluster cluster = h100(256);
  const auto network = free_network();
  const auto forward = [&](int micro_batches) {
    request.training = {.batch = micro_batches, .micro_batches = micro_batches};
    const Workload workload = make_workload(request);
    return Durations(request.config, workload, cluster, *network, {}, {}, Uneven::per_owner).of(Forward{1}, 0, 0);
  };
  EXPECT_GT(forward(1), forward(2));
  EXPECT_GT(2 * forward(2), forward(1));
  EXPECT_THROW(forward(3), InputError);
}

Cluster measured() {
  Cluster cluster;
  cluster.gpus = cluster.gpus_per_node = 8;
  for (const int ranks : {2, 4}) {
    for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                      CollectiveKind::all_gather, CollectiveKind::all_to_all})
      cluster.collective_seconds[{kind, ranks, 1}] = {{1000, 1e-5 * ranks}, {2000, 3e-5 * ranks}, {4000, 5e-5 * ranks}};
  }
  return cluster;
}

TEST(MeasuredNetwork, IsLinearBetweenWhatWasMeasured) {
  const auto network = measured_network(measured());
  EXPECT_NEAR(network->all_reduce(1000, {2, 1}), 2e-5, 1e-12);
  EXPECT_NEAR(network->all_reduce(1500, {2, 1}), 4e-5, 1e-12);
  EXPECT_NEAR(network->all_reduce(10, {2, 1}), 2e-5, 1e-12) << "latency below the smallest";
  EXPECT_NEAR(network->all_reduce(8000, {2, 1}), 2e-4, 1e-12) << "bandwidth above the largest";
  EXPECT_NEAR(network->all_to_all(1000, {8, 1}), 4e-5, 1e-12) << "the nearest number of ranks";
  EXPECT_EQ(network->all_gather({1000}, {1, 1}, Uneven::padded), 0) << "a group of one";
}

TEST(MeasuredNetwork, GroupsOfOneSizeWithinAndAcrossNodesDiffer) {
  Cluster cluster = measured();
  cluster.collective_seconds[{CollectiveKind::all_reduce, 4, 4}] = {{1000, 7e-5}};
  const auto network = measured_network(cluster);
  EXPECT_NEAR(network->all_reduce(1000, {4, 1}), 4e-5, 1e-12);
  EXPECT_NEAR(network->all_reduce(1000, {4, 4}), 7e-5, 1e-12);
  EXPECT_NEAR(network->all_reduce(1000, {2, 3}), 7e-5, 1e-12) << "the nearest number of nodes, before that of ranks";
}

TEST(MeasuredNetwork, TheBusiestRankOfUnevenSharesCounts) {
  const auto network = measured_network(measured());
  EXPECT_NEAR(network->reduce_scatter({500, 500}, {2, 1}, Uneven::per_owner), 2e-5, 1e-12);
  // All to one rank: it receives 1000, as much as each of two even shares of 2000.
  EXPECT_NEAR(network->reduce_scatter({1000, 0}, {2, 1}, Uneven::per_owner), 6e-5, 1e-12);
}

}  // namespace
}  // namespace canzona::harness
