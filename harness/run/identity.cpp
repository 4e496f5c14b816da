#include "harness/run/identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "reference/model/split.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kComplaint = "complaint";

/// FNV-1a of the program that runs.
std::string hash_of_binary() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (auto byte = std::istreambuf_iterator<char>(program); byte != std::istreambuf_iterator<char>(); ++byte)
    hash = (hash ^ static_cast<unsigned char>(*byte)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

ordered_json dimensions_of(const ModelConfig& config) {
  return {{"name", config.name},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.num_hidden_layers},
          {"num_attention_heads", config.num_attention_heads},
          {"num_key_value_heads", config.num_key_value_heads},
          {"head_dim", config.head_dim},
          {"tie_word_embeddings", config.tie_word_embeddings}};
}

}  // namespace

ordered_json identity_of(const RunRequest& request) {
  const WorkloadRequest& first = request.points.front().request;
  ordered_json identity;
  identity["binary"] = hash_of_binary();
  identity["model"] = dimensions_of(first.config);
  identity["mesh"] = {{"dp", first.mesh.dp}, {"tp", first.mesh.tp}};
  for (const Point& point : request.points) identity["strategies"].push_back(point.request.strategy);
  identity["strategy options"] = first.strategy_options;
  identity["bucket size"] = first.bucket_size.value_or(0);
  identity["optimizer"] = first.optimizer;
  identity["optimizer options"] = first.optimizer_options;
  identity["variant"] = request.engine.variant;
  identity["split"] = name_of(first.split);
  identity["batch"] = first.training.batch;
  identity["micro-batches"] = first.training.micro_batches;
  identity["clip norm"] = first.training.clip_norm;
  identity["gradient type"] = name_of(request.engine.gradient);
  identity["tokens"] = request.engine.tokens;
  identity["overlap"] = request.engine.overlap;
  identity["steps"] = request.steps;
  identity["warmup"] = request.warmup;
  identity["check"] = request.check;
  identity["seed"] = request.seed;
  return identity;
}

ordered_json complaint_of(const std::string& message) { return {{kComplaint, message}}; }

std::string difference_between(const std::vector<std::string>& identities) {
  std::vector<ordered_json> ranks;
  for (const std::string& text : identities) ranks.push_back(ordered_json::parse(text));
  const bool same = std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank == ranks.front(); });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].contains(kComplaint)) continue;
    const auto message = ranks[rank][kComplaint].get<std::string>();
    return same ? message : fmt::format("rank {}: {}", rank, message);
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (const auto& [key, value] : ranks.front().items()) {
      if (ranks[rank][key] == value) continue;
      return fmt::format("rank {} differs from rank 0: its {} is {}, rank 0 has {}", rank, key, ranks[rank][key].dump(),
                         value.dump());
    }
  }
  return {};
}

}  // namespace canzona::harness
