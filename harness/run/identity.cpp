#include "harness/run/identity.hpp"

#include <nlohmann/json.hpp>

#include "reference/model/split.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

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
  identity["precision"] = name_of(request.engine.precision.arithmetic);
  identity["gradient type"] = name_of(request.engine.precision.wire.gradient);
  identity["tokens"] = request.engine.tokens.count;
  identity["sequence"] = request.engine.tokens.sequence;
  identity["overlap"] = request.engine.overlap;
  identity["graphs"] = request.engine.graphs;
  identity["steps"] = request.steps;
  identity["warmup"] = request.warmup;
  identity["check"] = request.check ? request.check->of_each_kind.value_or(0) : -1;
  identity["check FLOPs"] = request.check ? request.check->flops : 0;
  identity["predicts itself"] = request.predicts_itself;
  identity["seed"] = request.seed;
  return identity;
}

}  // namespace canzona::harness
