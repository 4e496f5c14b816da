// Collectives of an even group, by bytes of the buffer: of two ranks that are threads, or of the processes that mpirun
// started. Every rank starts and waits for the same collectives in the same order; the first tells what it measured.
#include <functional>
#include <optional>

#include "optimized/engine/processes.hpp"
#include "optimized/engine/threads.hpp"
#include "tests/benchmark/measured.hpp"

namespace canzona::optimized {
namespace {

constexpr int kThreads = 2;
constexpr int kWarmUp = 3;
constexpr int kSamples = 15;
constexpr double kDeadline = 60;
constexpr int kRankFailed = 4;

/// One member of a group with its buffers.
struct Member {
  Rank& rank;
  std::int64_t elements;
  Buffer data = measured::random_buffer(rank.device, elements);
  Buffer received = rank.device.allocate_elements<float>(elements);

  std::int64_t share() const { return elements / rank.dp.size(); }
  Shares shares() const {
    Shares even;
    for (int member = 0; member < rank.dp.size(); ++member)
      even.push_back({{member * share(), (member + 1) * share()}});
    return even;
  }
};

using Prepare = std::unique_ptr<Collective> (*)(Member&);

std::unique_ptr<Collective> reduce_scatter(Member& own) {
  return own.rank.dp.reduce_scatter(own.rank.device, own.data.as<float>(), own.shares(), DType::fp32);
}

std::unique_ptr<Collective> all_gather(Member& own) {
  return own.rank.dp.all_gather(own.rank.device, own.data.as<float>(), own.shares());
}

std::unique_ptr<Collective> all_to_all(Member& own) {
  Transfer transfer(own.rank.dp.size());
  for (int member = 0; member < own.rank.dp.size(); ++member) {
    transfer.add_send(member, own.data.as<float>() + member * own.share(), own.share());
    transfer.add_receive(member, own.received.as<float>() + member * own.share(), own.share());
  }
  return own.rank.dp.all_to_all(std::move(transfer));
}

/// One collective of one size.
struct Point {
  const char* name;
  Prepare prepare;
  std::int64_t bytes;
  std::vector<double> seconds = {};  // samples of the first rank
  std::int64_t sent = 0;             // by it
};

std::vector<Point> points() {
  std::vector<Point> all;
  for (const auto& [name, prepare] : std::initializer_list<std::pair<const char*, Prepare>>{
           {"reduce_scatter", reduce_scatter}, {"all_gather", all_gather}, {"all_to_all", all_to_all}}) {
    for (std::int64_t bytes = std::int64_t{1} << 10; bytes <= std::int64_t{1} << 26; bytes *= 16)
      all.push_back({name, prepare, bytes});
  }
  return all;
}

void measure(Rank& rank, Point& point) {
  Member own{rank, point.bytes / static_cast<std::int64_t>(sizeof(float))};
  const auto stream = rank.device.make_stream();
  const auto collective = point.prepare(own);
  for (int sample = -kWarmUp; sample < kSamples; ++sample) {
    rank.world.all_gather("here");  // so that nobody is measured waiting for another to come
    const double seconds = measured::seconds(rank.device, *stream, [&] { collective->start(*stream); });
    if (rank.index == 0 && sample >= 0) point.seconds.push_back(seconds);
  }
  rank.world.all_gather("done");  // others may read what this rank sends
  if (rank.index == 0) point.sent = collective->bytes_sent();
}

/// The rate is of what one rank sends.
void tell(const Point& point, int ranks) {
  benchmark::RegisterBenchmark(fmt::format("{}/ranks:{}/bytes:{}", point.name, ranks, point.bytes).c_str(),
                               [point](benchmark::State& state) {
                                 for (std::size_t sample = 0; state.KeepRunning(); ++sample)
                                   state.SetIterationTime(point.seconds[sample]);
                                 const double median = measured::median(point.seconds);
                                 state.counters["median_s"] = median;
                                 state.counters["bytes/s"] = static_cast<double>(point.sent) / median;
                               })
      ->UseManualTime()
      ->Iterations(kSamples);
}

}  // namespace
}  // namespace canzona::optimized

int main(int argc, char** argv) {
  using namespace canzona::optimized;
  std::optional<Processes> processes;
  if (is_one_of_several_processes()) processes.emplace(kDeadline, kRankFailed);
  const int ranks = processes ? processes->size() : kThreads;
  std::vector<Point> all = points();
  const auto measure_all = [&](const ChosenBackend& backend) {
    const RankBody body = [&](Rank& rank) {
      for (Point& point : all) {
        Point other = point;
        measure(rank, rank.index == 0 ? point : other);
      }
    };
    if (processes) {
      processes->run({ranks, 1}, backend, body);
    } else {
      run_on_threads({ranks, 1}, kDeadline, backend, body);
    }
    if (processes && processes->rank() != 0) return false;
    for (const Point& point : all) tell(point, ranks);
    return true;
  };
  return measured::run(argc, argv, measure_all);
}
