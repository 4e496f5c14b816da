#include "harness/simulate/durations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"
#include "reference/plan/load.hpp"

namespace canzona::harness {
namespace {

constexpr double kBf16 = 2;
constexpr double kFp32 = 4;
/// Backward of a product: the gradients of its input and of its weight. FlashAttention recomputes its scores besides.
constexpr double kProductBackward = 2;
constexpr double kAttentionBackward = 2.5;

}  // namespace

Nanoseconds nanoseconds(double seconds) {
  constexpr double kLongest = 1e5;  // a day: sums of ten thousand such steps still fit 64 bits
  if (!(seconds <= kLongest)) {
    throw InputError("", "a simulated step", fmt::format("{:.3g} s", seconds), fmt::format("at most {} s", kLongest));
  }
  return std::llround(seconds * 1e9);
}

double rate_of(const ProductRates& rates, double m, double n, double k, bool is_symmetric) {
  return product_rate(is_symmetric && !rates.symmetric.empty() ? rates.symmetric : rates.plain, m, n, k);
}

double fp32_rate(const Gpu& gpu, double m, double n, double k, bool is_symmetric) {
  if (!gpu.fp32_rates.plain.empty()) return rate_of(gpu.fp32_rates, m, n, k, is_symmetric);
  return gpu.fp32_product_fraction * rate_of(gpu.rates, m, n, k, is_symmetric);
}

double factorization_seconds(const Gpu& gpu, const Factorization& factorization) {
  const auto n = static_cast<double>(factorization.n);
  const auto times = static_cast<double>(factorization.times);
  const auto table = gpu.factorization_seconds.find(factorization.kind);
  if (table != gpu.factorization_seconds.end()) {
    std::vector<std::pair<double, double>> logs;
    for (const auto& [size, seconds] : table->second) logs.emplace_back(size, std::log(seconds));
    // Small ones wait for their launches, so that none is faster than the smallest measured.
    return times * std::exp(interpolate(logs, n)) * std::pow(std::max(1.0, n / logs.back().first), 3);
  }
  constexpr double kKernelsPerColumn = 2;
  const bool eigh = factorization.kind == Factorization::Kind::eigh;
  const double passes = eigh ? kFp32 * n * n * n / 3 : 0;  // bytes: Σ over columns of the trailing matrix
  const double reduction = eigh ? 4 * n * n * n / 3 : 0;   // FLOPs made in those passes
  const double rate = fp32_rate(gpu, n, n, n, false);
  const double rest = static_cast<double>(Factorization{factorization.kind, factorization.n, 1}.flops()) - reduction;
  return times * (kKernelsPerColumn * n * gpu.launch_seconds + passes / gpu.memory_bytes_per_second + rest / rate);
}

bool is_low_confidence(const Workload& workload, const Cluster& cluster) {
  const auto unmeasured = [&](const MatrixCost& cost) {
    return cost.nominal ||
           std::any_of(cost.factorizations.begin(), cost.factorizations.end(), [&](const Factorization& own) {
             const auto table = cluster.gpu.factorization_seconds.find(own.kind);
             const auto n = static_cast<double>(own.n);
             return table == cluster.gpu.factorization_seconds.end() || n < table->second.front().first ||
                    n > table->second.back().first;
           });
  };
  return std::any_of(workload.model.parameters.begin(), workload.model.parameters.end(), [&](const Parameter& own) {
    return unmeasured(workload.cost.of(own)) || unmeasured(workload.cost.refresh_of(own));
  });
}

void require_fitting(const Mesh& mesh, const Cluster& cluster) {
  const bool is_measured = !cluster.collective_seconds.empty();
  if (is_measured ? mesh.ranks() != cluster.gpus : mesh.ranks() > cluster.gpus) {
    throw InputError("", "the mesh", fmt::format("{} × {} = {} GPUs", mesh.dp, mesh.tp, mesh.ranks()),
                     fmt::format("{}the {} of cluster {}", is_measured ? "" : "up to ", cluster.gpus, cluster.name));
  }
}

Durations::Durations(const ModelConfig& config, const Workload& workload, const Cluster& cluster,
                     const Network& network, const TrainingShape& training, const WireTypes& wire, Uneven uneven)
    : workload_(workload),
      cluster_(cluster),
      network_(network),
      training_(training),
      wire_(wire),
      uneven_(uneven),
      dp_(dp_group(workload.mesh, cluster.gpus_per_node)),
      tp_(tp_group(workload.mesh, cluster.gpus_per_node)) {
  require_fitting(workload.mesh, cluster);
  const int micro_batches = workload.training.micro_batches;
  if (micro_batches > 1 && training.tokens % (micro_batches * training.sequence) != 0) {
    throw InputError("", "the number of micro-batches", std::to_string(micro_batches),
                     fmt::format("one that shares the {} tokens of an iteration in whole sequences of {}",
                                 training.tokens, training.sequence));
  }
  training_.tokens /= micro_batches;
  if (cluster.trains_as_engine) {
    for (int layer = 0; layer <= workload.model.layers + 1; ++layer) layers_.push_back(engine_layer(layer));
  } else {
    layers_.push_back(embedding(config));
    layers_.insert(layers_.end(), static_cast<std::size_t>(workload.model.layers), decoder_layer(config));
    layers_.push_back(output(config));
  }
  for (const Parameter& parameter : workload.model.parameters) {
    updates_.push_back(nanoseconds(seconds_of(workload.cost.of(parameter))));
    auto& of_blocks = refreshes_.emplace_back();
    for (const Block& block : parameter.blocks)
      of_blocks.push_back(nanoseconds(seconds_of(workload.cost.refresh_of(parameter, block))));
  }
  for (const bool over_tp : {false, true}) agreements_[over_tp ? 1 : 0] = nanoseconds(agree_seconds(over_tp));
  for (std::size_t bucket = 0; bucket < workload.buffer.buckets.size(); ++bucket) {
    reductions_.push_back(nanoseconds(reduce_seconds(static_cast<int>(bucket))));
    gathers_.push_back(nanoseconds(gather_parameters_seconds(static_cast<int>(bucket))));
  }
}

Nanoseconds Durations::of(const Action& action, int rank, std::int64_t iteration) const {
  const int dp_rank = workload_.mesh.coordinate(rank).dp;
  return std::visit(
      Overloaded{[&](const Forward& step) { return nanoseconds(layers_[step.layer].forward); },
                 [&](const Backward& step) { return nanoseconds(layers_[step.layer].backward); },
                 [&](const ReduceGradients& step) { return reductions_[step.bucket]; },
                 [&](const AgreeOnGradients& step) { return agreements_[step.over_tp ? 1 : 0]; },
                 [&](const GatherShards& step) {
                   return nanoseconds(shards_seconds(workload_.plan.groups_of(dp_rank)[step.group], false));
                 },
                 [&](const Update& step) {
                   Nanoseconds sum = updates_[step.parameter];
                   for (std::size_t block = 0; block < refreshes_[step.parameter].size(); ++block) {
                     const std::int64_t turn = workload_.turns[step.parameter][block];
                     if ((iteration + turn) % workload_.cost.refresh_period() == 0)
                       sum += refreshes_[step.parameter][block];
                   }
                   return sum;
                 },
                 [&](const UpdateElements& step) { return nanoseconds(elements_seconds(step.bucket, dp_rank)); },
                 [&](const ScatterUpdates& step) {
                   return nanoseconds(shards_seconds(workload_.plan.groups_of(dp_rank)[step.group], true));
                 },
                 [&](const Apply& step) {
                   const auto elements = static_cast<double>(workload_.buffer.slot_of(step.parameter).elements.size());
                   return nanoseconds(
                       memory_seconds(elements * (static_cast<double>(bytes_of(wire_.update)) + applied_bytes())));
                 },
                 [&](const GatherParameters& step) { return gathers_[step.bucket]; }},
      action);
}

double Durations::product_seconds(double m, double n, double k, DType type, bool is_symmetric) const {
  const bool low = bytes_of(type) < bytes_of(DType::fp32);
  const Gpu& gpu = cluster_.gpu;
  const double rate = low ? rate_of(gpu.rates, m, n, k, is_symmetric) : fp32_rate(gpu, m, n, k, is_symmetric);
  const double bytes = static_cast<double>(bytes_of(type)) * (m * k + k * n + m * n);
  return cluster_.gpu.launch_seconds + std::max(2 * m * n * k / rate, bytes / cluster_.gpu.memory_bytes_per_second);
}

double Durations::product_seconds(const Product& product) const {
  const double one = product_seconds(static_cast<double>(product.m), static_cast<double>(product.n),
                                     static_cast<double>(product.k), wire_.parameter);
  const double launch = cluster_.gpu.launch_seconds;
  return launch + static_cast<double>(product.count) * (one - launch);
}

/// Of an element: the master weight is read and written, and the model's written where that is another one.
double Durations::applied_bytes() const { return 2 * kFp32 + (wire_.parameter == DType::fp32 ? 0 : weight_bytes()); }

double Durations::memory_seconds(double bytes) const {
  return bytes > 0 ? cluster_.gpu.launch_seconds + bytes / cluster_.gpu.memory_bytes_per_second : 0;
}

/// Four products, causal attention, and the elementwise passes between them; two all-reduces of the activations over TP
/// in each direction (with sequence parallelism a reduce-scatter and an all-gather instead: the same bytes).
Durations::LayerSeconds Durations::decoder_layer(const ModelConfig& config) const {
  const double tp = workload_.mesh.tp;
  const auto tokens = static_cast<double>(training_.tokens);
  const auto sequence = static_cast<double>(std::min(training_.sequence, training_.tokens));
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto ffn = static_cast<double>(config.intermediate_size) / tp;
  const double query = static_cast<double>(config.num_attention_heads * config.head_dim) / tp;
  const double key_value = static_cast<double>(config.num_key_value_heads * config.head_dim) / tp;
  const auto backward_of = [&](double forward) { return kProductBackward * forward; };

  double products = 0;
  products += product_seconds(tokens, query + 2 * key_value, hidden);
  products += product_seconds(tokens, hidden, query);
  products += product_seconds(tokens, 2 * ffn, hidden);
  products += product_seconds(tokens, hidden, ffn);
  // Scores and values, half of them masked: 2 products of sequence × sequence × head_dim for each head and sequence.
  const double heads = static_cast<double>(config.num_attention_heads) / tp * tokens / sequence;
  const double attention_rate =
      product_rate(cluster_.gpu.rates.plain, sequence, sequence, static_cast<double>(config.head_dim));
  const double attention = cluster_.gpu.launch_seconds +
                           heads * 2 * sequence * sequence * static_cast<double>(config.head_dim) / attention_rate;
  // Two norms and two residual sums read and write the activations; SwiGLU reads gate and up and writes one.
  const double elementwise = 2 * memory_seconds(2 * kBf16 * tokens * hidden) +
                             2 * memory_seconds(3 * kBf16 * tokens * hidden) + memory_seconds(3 * kBf16 * tokens * ffn);
  const double communication = 2 * network_.all_reduce(kBf16 * tokens * hidden, tp_);
  return {products + attention + elementwise + communication,
          backward_of(products) + kAttentionBackward * attention + 2 * elementwise + communication};
}

Durations::LayerSeconds Durations::embedding(const ModelConfig& config) const {
  const double activations = kBf16 * static_cast<double>(training_.tokens * config.hidden_size);
  const double communication = network_.all_reduce(activations, tp_);
  return {memory_seconds(2 * activations) + communication, memory_seconds(3 * activations)};
}

Durations::LayerSeconds Durations::output(const ModelConfig& config) const {
  const auto tokens = static_cast<double>(training_.tokens);
  const auto hidden = static_cast<double>(config.hidden_size);
  const double vocabulary = static_cast<double>(config.vocab_size) / workload_.mesh.tp;
  const double product = product_seconds(tokens, vocabulary, hidden);
  const double norm = memory_seconds(2 * kBf16 * tokens * hidden);
  const double loss = memory_seconds(kFp32 * tokens * vocabulary);
  const double communication = network_.all_reduce(kBf16 * tokens * hidden, tp_);
  return {product + norm + loss, kProductBackward * product + 2 * norm + loss + communication};
}

/// Backward besides reads noise and weights of the layer, and reads and writes gradients, sample by sample.
Durations::LayerSeconds Durations::engine_layer(int layer) const {
  const std::int64_t sequence = std::min(training_.sequence, training_.tokens);
  const LayerWork work = layer_work(workload_.model, layer, workload_.mesh.tp, training_.tokens, sequence);
  LayerSeconds seconds{operations_seconds(work.forward), operations_seconds(work.backward)};
  const double samples = workload_.training.batch / workload_.training.micro_batches;
  for (const Slot& slot : workload_.buffer.slots) {
    if (workload_.model.parameters[slot.parameter].layer == layer)
      seconds.backward +=
          samples * memory_seconds((3 * kFp32 + weight_bytes()) * static_cast<double>(slot.elements.size()));
  }
  return seconds;
}

double Durations::operations_seconds(const std::vector<LayerOperation>& operations) const {
  double seconds = 0;
  for (const LayerOperation& operation : operations) {
    seconds +=
        std::visit(Overloaded{[&](const WeightProduct& own) { return product_seconds(own.product); },
                              [&](const AttentionPass& own) { return attention_seconds(own); },
                              [&](const ReduceActivations& own) {
                                return network_.all_reduce(weight_bytes() * static_cast<double>(own.elements), tp_);
                              }},
                   operation);
  }
  return seconds;
}

double Durations::attention_seconds(const AttentionPass& pass) const {
  double seconds = 0;
  for (const Product& product : pass.products()) seconds += product_seconds(product);
  for (const std::int64_t elements : pass.elementwise_elements())
    seconds += memory_seconds(weight_bytes() * static_cast<double>(elements));
  const double softmax = weight_bytes() * static_cast<double>(pass.softmax_elements());
  const double rate = cluster_.gpu.softmax_bytes_per_second;
  return seconds + (rate > 0 ? softmax / rate : memory_seconds(softmax));
}

double Durations::seconds_of(const MatrixCost& cost) const {
  double seconds = memory_seconds(static_cast<double>(cost.bytes_moved));
  for (const MatrixProduct& product : cost.products) {
    seconds += static_cast<double>(product.times) *
               product_seconds(static_cast<double>(product.m), static_cast<double>(product.n),
                               static_cast<double>(product.k), product.type, product.is_symmetric);
  }
  for (const Factorization& factorization : cost.factorizations)
    seconds += factorization_seconds(cluster_.gpu, factorization);
  return seconds;
}

/// Over DP, the busiest rank first reads what it counts; then all add up one ExactSum.
double Durations::agree_seconds(bool over_tp) const {
  const double sum = network_.all_reduce(static_cast<double>(ExactSum::bytes()), over_tp ? tp_ : dp_);
  if (over_tp) return sum;
  std::int64_t elements = workload_.buffer.numel() / workload_.mesh.dp;
  if (!workload_.plan.replicated()) {
    const auto owned = shard_elements(workload_.plan, workload_.buffer);
    elements = *std::max_element(owned.begin(), owned.end());
  }
  const double bytes = static_cast<double>(elements * bytes_of(wire_.gradient));
  const double rate = cluster_.gpu.agreement_bytes_per_second;
  return (rate > 0 ? cluster_.gpu.launch_seconds + bytes / rate : memory_seconds(bytes)) + sum;
}

double Durations::elements_seconds(int index, int dp_rank) const {
  const Bucket& bucket = workload_.buffer.buckets[index];
  std::int64_t elements = 0;
  for (const Range& owned : owned_ranges(workload_.plan, workload_.buffer, index, dp_rank)) {
    for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      if (workload_.model.parameters[workload_.buffer.slots[slot].parameter].routing != Routing::elementwise) continue;
      elements += intersection(workload_.buffer.slots[slot].elements, owned).size();
    }
  }
  return memory_seconds(static_cast<double>(workload_.cost.of_elements(elements).bytes_moved) +
                        static_cast<double>(elements) * applied_bytes());
}

double Durations::reduce_seconds(int bucket) const {
  const auto type = static_cast<double>(bytes_of(wire_.gradient));
  const double bytes = static_cast<double>(workload_.buffer.buckets[bucket].elements.size()) * type;
  if (workload_.plan.gradient_reduction == GradientReduction::all_reduce) return network_.all_reduce(bytes, dp_);
  std::vector<double> shares;
  for (const std::int64_t owned : owned_elements(workload_.plan, workload_.buffer, bucket)) {
    shares.push_back(static_cast<double>(owned) * type);
  }
  const bool padded = workload_.plan.gradient_reduction == GradientReduction::padded_reduce_scatter;
  return network_.reduce_scatter(shares, dp_, padded ? Uneven::padded : uneven_);
}

double Durations::gather_parameters_seconds(int bucket) const {
  if (workload_.plan.parameter_gather == ParameterGather::none) return 0;
  std::vector<double> shares;
  for (const std::int64_t owned : owned_elements(workload_.plan, workload_.buffer, bucket)) {
    shares.push_back(static_cast<double>(owned * bytes_of(wire_.parameter)));
  }
  const bool padded = workload_.plan.parameter_gather == ParameterGather::padded_overlapped;
  return network_.all_gather(shares, dp_, padded ? Uneven::padded : uneven_);
}

double Durations::shards_seconds(const MicroGroup& group, bool scatter) const {
  const auto type = static_cast<double>(bytes_of(scatter ? wire_.update : wire_.gradient));
  std::vector<double> hosted(workload_.mesh.tp, 0);
  for (const HostedMatrix& member : group.members) {
    hosted[member.host] += type * static_cast<double>(workload_.buffer.slot_of(member.parameter).elements.size());
  }
  const double total = std::accumulate(hosted.begin(), hosted.end(), 0.0);
  if (workload_.plan.matrix_update == MatrixUpdate::redundant) {
    return network_.all_gather(std::vector<double>(workload_.mesh.tp, total), tp_, Uneven::per_owner);
  }
  // Each rank exchanges with a host what that host takes from it (or returns): the host's traffic is (T − 1) shards.
  double busiest = 0;
  for (const double bytes : hosted) busiest = std::max({busiest, (workload_.mesh.tp - 1) * bytes, total - bytes});
  return busiest > 0 ? network_.all_to_all(busiest, tp_) : 0;
}

}  // namespace canzona::harness
