#include "harness/check/held.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "reference/core/random.hpp"

namespace canzona::harness {
namespace {

/// What a rank tells of its shard before anybody sends it.
struct Digests {
  std::uint64_t weights = 0;
  std::uint64_t masters = 0;
};

std::string bytes_of(const void* data, std::size_t size) { return {static_cast<const char*>(data), size}; }

}  // namespace

std::uint64_t digest_of(const std::vector<float>& values) {
  std::uint64_t digest = values.size();
  for (const float value : values) digest = mix_bits(digest ^ std::bit_cast<std::uint32_t>(value));
  return digest;
}

std::vector<Range> owned_of_shard(const Workload& workload, int parameter, int dp_rank) {
  const Range shard = workload.buffer.slot_of(parameter).elements;
  std::vector<Range> owned;
  for (const Range& range :
       owned_ranges(workload.plan, workload.buffer, workload.buffer.bucket_of(parameter), dp_rank)) {
    const Range own = intersection(range, shard);
    if (!own.empty()) owned.push_back({own.begin - shard.begin, own.end - shard.begin});
  }
  return owned;
}

std::vector<Held> gather_held(optimized::Rank& rank, const Workload& workload, optimized::Engine& engine,
                              int parameter) {
  const Mesh& mesh = workload.mesh;
  const Range shard = workload.buffer.slot_of(parameter).elements;
  std::vector<float> masters;
  for (const Range& own : owned_of_shard(workload, parameter, rank.at.dp)) {
    const std::vector<float> part = engine.masters({shard.begin + own.begin, shard.begin + own.end});
    masters.insert(masters.end(), part.begin(), part.end());
  }
  const Digests own{digest_of(engine.weights(shard)), digest_of(masters)};
  std::vector<Digests> digests;
  for (const std::string& text : rank.world.all_gather(bytes_of(&own, sizeof own)))
    std::memcpy(&digests.emplace_back(), text.data(), sizeof own);
  const auto first_with_these = [&](int index) {
    const Coordinate at = mesh.coordinate(index);
    if (!workload.plan.replicated()) return index;
    int dp_rank = 0;
    const auto replica = [&] { return mesh.rank({dp_rank, at.tp, 0}); };
    const auto digest = [&](int of) { return digests[static_cast<std::size_t>(of)].masters; };
    while (digest(replica()) != digest(index)) ++dp_rank;
    return replica();
  };
  const bool sends = first_with_these(rank.index) == rank.index;
  const std::vector<std::string> sent =
      rank.world.gather(sends ? bytes_of(masters.data(), masters.size() * sizeof(float)) : "");
  std::vector<Held> held(sent.size());
  for (std::size_t index = 0; index < held.size(); ++index) {
    held[index].weights = digests[index].weights;
    const auto first = static_cast<std::size_t>(first_with_these(static_cast<int>(index)));
    if (first == index) {
      std::vector<float> received(sent[index].size() / sizeof(float));
      std::copy(sent[index].begin(), sent[index].end(), reinterpret_cast<char*>(received.data()));
      held[index].masters = std::make_shared<const std::vector<float>>(std::move(received));
    } else {
      held[index].masters = held[first].masters;
    }
  }
  return held;
}

}  // namespace canzona::harness
