// Collectives of two ranks that are threads, by bytes of the buffer.
#include <atomic>
#include <functional>

#include "optimized/host/thread_communicator.hpp"
#include "tests/benchmark/measured.hpp"

namespace canzona::optimized {
namespace {

constexpr int kRanks = 2;

/// One member of a group with its buffers.
struct Rank {
  Rank(ThreadGroup& group, int member, std::int64_t elements)
      : communicator(group, member, Watch{}),
        data(measured::random_buffer(*device, elements)),
        received(device->allocate_elements<float>(elements)) {}

  std::unique_ptr<Device> device = make_host_device();
  std::unique_ptr<Stream> stream = device->make_stream();
  ThreadCommunicator communicator;
  Buffer data;
  Buffer received;
};

using Prepare = std::function<std::unique_ptr<Collective>(Rank&, std::int64_t elements)>;

Shares halves(std::int64_t elements) { return {{{0, elements / 2}}, {{elements / 2, elements}}}; }

std::unique_ptr<Collective> reduce_scatter(Rank& own, std::int64_t elements) {
  return own.communicator.reduce_scatter(*own.device, own.data.as<float>(), halves(elements), DType::fp32);
}

std::unique_ptr<Collective> all_gather(Rank& own, std::int64_t elements) {
  return own.communicator.all_gather(*own.device, own.data.as<float>(), halves(elements));
}

std::unique_ptr<Collective> all_to_all(Rank& own, std::int64_t elements) {
  Transfer transfer(kRanks);
  for (int member = 0; member < kRanks; ++member) {
    transfer.add_send(member, own.data.as<float>() + member * (elements / 2), elements / 2);
    transfer.add_receive(member, own.received.as<float>() + member * (elements / 2), elements / 2);
  }
  return own.communicator.all_to_all(std::move(transfer));
}

/// Until both ranks are done; the rate is of what one rank sends.
void measure(benchmark::State& state, const Prepare& prepare) {
  const std::int64_t elements = state.range(0) / static_cast<std::int64_t>(sizeof(float));
  const std::atomic<bool> aborted = false;
  ThreadGroup group(kRanks, aborted);
  Rank first(group, 0, elements), second(group, 1, elements);
  const auto ours = prepare(first, elements);
  const auto theirs = prepare(second, elements);
  for (auto _ : state) {
    ours->start(*first.stream);
    theirs->start(*second.stream);
    first.stream->synchronize();
    second.stream->synchronize();
  }
  state.SetBytesProcessed(state.iterations() * ours->bytes_sent());
}

void register_all() {
  const std::vector<std::pair<std::string, Prepare>> collectives{
      {"reduce_scatter", reduce_scatter}, {"all_gather", all_gather}, {"all_to_all", all_to_all}};
  for (const auto& [name, prepare] : collectives) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [prepare = prepare](benchmark::State& state) { measure(state, prepare); })
        ->ArgName("bytes")
        ->RangeMultiplier(16)
        ->Range(std::int64_t{1} << 10, std::int64_t{1} << 26)
        ->UseRealTime()
        ->MinTime(0.2)
        ->Repetitions(5)
        ->ReportAggregatesOnly();
  }
}

}  // namespace
}  // namespace canzona::optimized

int main(int argc, char** argv) {
  canzona::optimized::register_all();
  return canzona::optimized::measured::run(argc, argv);
}
