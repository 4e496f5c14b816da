#include "harness/calibrate/probes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/simulate/network.hpp"
#include "optimized/device/passes.hpp"
#include "optimized/engine/attention.hpp"
#include "reference/core/exact_sum.hpp"
#include "reference/core/random.hpp"

namespace canzona::harness {
namespace {

using optimized::Buffer;
using optimized::DevicePointer;
using optimized::Transpose;

constexpr double kPassBytes = 16;  // an element of halve_and_add
/// Of what only has to be more than any cache holds: a whole large model would leave no memory for the rest.
constexpr std::int64_t kMostElements = std::int64_t{1} << 27;
/// What an iteration goes over before a weight's next turn: weights, gradients, noise, momentum and updates.
constexpr std::int64_t kIterationBuffers = 5;
/// More than a core's own cache, or a GPU's, holds; a collective's staging is as much.
constexpr std::int64_t kColdBytes = std::int64_t{1} << 26;
constexpr std::int64_t kMostPlaces = 64;

template <class T>
DevicePointer<T> as(DevicePointer<float> floats) {
  return DevicePointer<T>(reinterpret_cast<T*>(floats.raw()));
}

}  // namespace

Probes::Probes(optimized::Rank& rank, const CalibrationRequest& request, const Workload& workload, int ranks_per_node)
    : rank_(rank),
      workload_(workload),
      type_(request.type),
      begun_(rank.device.make_event()),
      ended_(rank.device.make_event()),
      stream_(rank.device.make_stream()) {
  add_launch();
  add_pass();
  add_agreement();
  add_softmax(operations_of(workload, request.tokens));
  add_products(products_of(workload, request.tokens, type_));
  for (const auto& [kind, n] : factorizations_of(workload)) add_factorization(kind, n);
  const std::vector<std::int64_t> sizes = collective_sizes(workload, request.tokens);
  const CommunicationGroup dp = dp_group(workload.mesh, ranks_per_node);
  const CommunicationGroup tp = tp_group(workload.mesh, ranks_per_node);
  add_collectives(rank.dp, dp, sizes);
  if (tp != dp) add_collectives(rank.tp, tp, sizes);
}

double Probes::seconds(const Probe& probe) {
  stream_->record(*begun_);
  for (std::int64_t repeat = 0; repeat < probe.repeats; ++repeat) probe.start(*stream_);
  stream_->record(*ended_);
  stream_->synchronize();
  return (ended_->seconds() - begun_->seconds()) / static_cast<double>(probe.repeats);
}

DevicePointer<float> Probes::elements(std::int64_t count) {
  return buffers_.emplace_back(rank_.device.allocate_elements<float>(count)).as<float>();
}

void Probes::add_launch() {
  const DevicePointer<float> one = elements(1);
  probes_.push_back({[one](optimized::Stream& stream) { optimized::halve_and_add(stream, 1, one, one, one); },
                     [](Cluster& cluster, double seconds) { cluster.gpu.launch_seconds = seconds; }});
}

/// Matrix after matrix, as a step goes over them: each is cold when its turn comes.
void Probes::add_pass() {
  const Range most{0, std::min(workload_.buffer.numel(), kMostElements)};
  const std::int64_t numel = most.size();
  const auto g = elements(numel), x = elements(numel), y = elements(numel);
  std::vector<Range> pieces;
  for (const Slot& slot : workload_.buffer.slots) {
    if (const Range piece = intersection(slot.elements, most); piece.size() > 0) pieces.push_back(piece);
  }
  probes_.push_back({[pieces, g, x, y](optimized::Stream& stream) {
                       for (const Range& piece : pieces) {
                         const std::int64_t first = piece.begin;
                         optimized::halve_and_add(stream, piece.size(), g + first, x + first, y + first);
                       }
                     },
                     [numel, launches = static_cast<double>(pieces.size())](Cluster& cluster, double seconds) {
                       const double moving = std::max(seconds - launches * cluster.gpu.launch_seconds, seconds / 2);
                       cluster.gpu.memory_bytes_per_second = kPassBytes * static_cast<double>(numel) / moving;
                     }});
}

/// The exact sum of squares of random numbers, whose exponents vary as a gradient's do.
void Probes::add_agreement() {
  const std::int64_t numel = std::min(workload_.buffer.numel(), kMostElements);
  std::vector<float> values(static_cast<std::size_t>(numel));
  for (std::int64_t i = 0; i < numel; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>(random_normal(1, i));
  const auto gradient = elements(numel);
  rank_.device.copy(*stream_, values.data(), gradient.raw(), values.size() * sizeof(float));
  stream_->synchronize();
  buffers_.push_back(rank_.device.allocate_elements<std::int64_t>(ExactSum::kIntegers));
  const auto squares = buffers_.back().as<std::int64_t>();
  probes_.push_back({[gradient, numel, squares](optimized::Stream& stream) {
                       optimized::add_exact_squares(stream, gradient, numel, squares);
                     },
                     [numel](Cluster& cluster, double seconds) {
                       cluster.gpu.agreement_bytes_per_second =
                           static_cast<double>(numel) * static_cast<double>(sizeof(float)) / seconds;
                     }});
}

/// Of what it has given before: its work does not depend on values.
void Probes::add_softmax(const std::vector<LayerOperation>& operations) {
  const auto found = std::find_if(operations.begin(), operations.end(), [](const LayerOperation& operation) {
    return std::holds_alternative<AttentionPass>(operation);
  });
  const auto pass = std::get<AttentionPass>(*found);
  const std::int64_t rows = pass.shape.heads() * pass.shape.tokens();
  elements(pass.shape.scores());
  const Buffer& scores = buffers_.back();
  const auto largest = buffers_.emplace_back(rank_.device.allocate_elements<double>(2 * rows)).as<double>();
  probes_.push_back({[this, pass, address = scores.as<std::byte>().raw(), largest, rows](optimized::Stream& stream) {
                       optimized::with_weight_type(type_, [&]<class T>(T) {
                         softmax(stream, pass.shape, DevicePointer<T>(reinterpret_cast<T*>(address)), largest,
                                 largest + rows);
                       });
                     },
                     [bytes = pass.softmax_elements() * bytes_of(type_)](Cluster& cluster, double seconds) {
                       cluster.gpu.softmax_bytes_per_second = static_cast<double>(bytes) / seconds;
                     }});
}

void Probes::add_products(const std::set<ProductKey>& keys) {
  std::int64_t largest = 0;
  for (const ProductKey& key : keys)
    largest = std::max({largest, key.count * key.m * key.k, key.count * key.k * key.n, key.count * key.m * key.n});
  for (auto& own : operands_) own = {elements(largest), elements(largest), elements(largest)};
  weight_count_ = std::max(std::min(kIterationBuffers * workload_.buffer.numel(), kMostElements), largest);
  weights_ = elements(weight_count_);
  for (const ProductKey& key : keys) {
    probes_.push_back({[this, key](optimized::Stream& stream) {
                         optimized::with_weight_type(key.type, [&]<class T>(T) { multiply<T>(stream, key); });
                       },
                       [this, key](Cluster& cluster, double seconds) { enter_products(cluster, key, seconds); }});
  }
}

template <class T>
void Probes::multiply(optimized::Stream& stream, const ProductKey& key) {
  const auto [kind, type, m, n, k, count] = key;
  const auto& [first, second, result] = operands_[next_operands_++ % operands_.size()];
  const auto A = as<T>(first), B = as<T>(second);
  auto& algebra = rank_.device.linear_algebra().in<T>();
  const optimized::MatrixView<T> out{as<T>(result), m, n};
  const Transpose no = Transpose::no, yes = Transpose::yes;
  switch (kind) {
    case ProductKind::plain: return algebra.products(stream, 1, {A, m, k}, no, {B, k, n}, no, 0, out, count);
    case ProductKind::right_transposed:
      return algebra.products(stream, 1, {A, m, k}, no, {B, n, k}, yes, 0, out, count);
    case ProductKind::left_transposed: return algebra.products(stream, 1, {A, k, m}, yes, {B, k, n}, no, 0, out, count);
    case ProductKind::symmetric: return algebra.symmetric_product(stream, 1, {A, m, k}, no, 0, out);
    case ProductKind::forward:
      return algebra.product(stream, 1, {A, m, k}, no, {next_weights<T>(k * n), n, k}, yes, 0, out);
    case ProductKind::input_gradient:
      return algebra.product(stream, 1, {A, m, k}, no, {next_weights<T>(k * n), k, n}, no, 0, out);
  }
}

/// Other ones each time: by the time that they recur, an iteration's memory has passed through the cache.
template <class T>
DevicePointer<T> Probes::next_weights(std::int64_t count) {
  if (next_weight_ + count > weight_count_) next_weight_ = 0;
  const DevicePointer<T> weights = as<T>(weights_) + next_weight_;
  next_weight_ += count;
  return weights;
}

/// Where two kinds have one shape, the rate is that of both together.
void Probes::enter_products(Cluster& cluster, const ProductKey& key, double seconds) const {
  ProductRate rate{static_cast<double>(key.m), static_cast<double>(key.n), static_cast<double>(key.k), 0};
  ProductRates& of_type = key.type == type_ ? cluster.gpu.rates : cluster.gpu.fp32_rates;
  auto& rates = key.kind == ProductKind::symmetric ? of_type.symmetric : of_type.plain;
  const double launch = std::min(cluster.gpu.launch_seconds, seconds / 2);
  rate.flops_per_second = static_cast<double>(key.count) * 2 * rate.m * rate.n * rate.k / (seconds - launch);
  const auto same = std::find_if(rates.begin(), rates.end(), [&](const ProductRate& other) {
    return other.m == rate.m && other.n == rate.n && other.k == rate.k;
  });
  if (same == rates.end()) {
    rates.push_back(rate);
  } else {
    same->flops_per_second = 2 / (1 / same->flops_per_second + 1 / rate.flops_per_second);
  }
}

/// Of a symmetric matrix of random numbers, which is put back each time.
void Probes::add_factorization(Factorization::Kind kind, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n * n));
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t col = 0; col < n; ++col) {
      const std::int64_t index = std::min(row, col) * n + std::max(row, col);
      values[static_cast<std::size_t>(row * n + col)] = static_cast<float>(random_normal(1, index));
    }
  }
  const auto original = elements(n * n), A = elements(n * n), found_values = elements(n);
  rank_.device.copy(*stream_, values.data(), original.raw(), values.size() * sizeof(float));
  stream_->synchronize();
  auto& algebra = rank_.device.linear_algebra().factorizations<float>();
  const auto work =
      buffers_.emplace_back(rank_.device.allocate(static_cast<std::size_t>(algebra.bytes(n)))).as<std::byte>();
  const auto found = buffers_.emplace_back(rank_.device.allocate_elements<std::int32_t>(1)).as<std::int32_t>();
  const auto start = [this, &algebra, kind, n, original, A, found_values, work, found](optimized::Stream& stream) {
    rank_.device.copy(stream, original, n, A, n, n, n);
    if (kind == Factorization::Kind::eigh) {
      algebra.eigh(stream, {A, n, n}, found_values, found, work);
    } else {
      algebra.qr(stream, {A, n, n}, work);
    }
  };
  probes_.push_back({start, [kind, n](Cluster& cluster, double seconds) {
                       cluster.gpu.factorization_seconds[kind].emplace_back(static_cast<double>(n), seconds);
                     }});
}

void Probes::add_collectives(optimized::Communicator& group, const CommunicationGroup& spread,
                             const std::vector<std::int64_t>& sizes) {
  if (spread.ranks == 1) return;
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t room = std::max(std::min(workload_.buffer.numel() * kFloat, kColdBytes), sizes.back());
  const auto data = elements(room / kFloat), other = elements(room / kFloat);
  for (const std::int64_t bytes : sizes) {
    const std::int64_t count = bytes / kFloat;
    std::map<CollectiveKind, Collectives> own;
    for (std::int64_t place = 0; place < std::min(room / bytes, kMostPlaces); ++place)
      add_place(group, data + place * count, other + place * count, count, own);
    for (auto& [kind, collectives] : own) add_collective(kind, spread, bytes, std::move(collectives));
  }
}

/// One of each kind, of `count` elements.
void Probes::add_place(optimized::Communicator& group, DevicePointer<float> data, DevicePointer<float> arriving,
                       std::int64_t count, std::map<CollectiveKind, Collectives>& own) {
  const int ranks = group.size();
  const Range all{0, count};
  optimized::Shares shares;
  for (const Range& range : even_ranges(all, ranks)) shares.push_back({range});
  optimized::Transfer transfer(ranks);
  const std::int64_t piece = count / (ranks - 1);
  for (int member = 0; member < ranks; ++member) {
    if (member == group.rank()) continue;
    const int place = (member - group.rank() + ranks) % ranks - 1;
    transfer.add_send(member, data + place * piece, piece);
    transfer.add_receive(member, arriving + place * piece, piece);
  }
  own[CollectiveKind::all_reduce].push_back(group.all_reduce(rank_.device, data, all, DType::fp32));
  own[CollectiveKind::reduce_scatter].push_back(group.reduce_scatter(rank_.device, data, shares, DType::fp32));
  own[CollectiveKind::all_gather].push_back(group.all_gather(rank_.device, data, shares));
  own[CollectiveKind::all_to_all].push_back(group.all_to_all(std::move(transfer)));
}

void Probes::add_collective(CollectiveKind kind, const CommunicationGroup& spread, std::int64_t bytes,
                            Collectives collectives) {
  probes_.push_back({[all = std::make_shared<Collectives>(std::move(collectives)), turn = std::size_t{0}](
                         optimized::Stream& stream) mutable { (*all)[turn++ % all->size()]->start(stream); },
                     [kind, spread, bytes](Cluster& cluster, double seconds) {
                       cluster.collective_seconds[{kind, spread.ranks, spread.nodes}].emplace_back(
                           static_cast<double>(bytes), seconds);
                     },
                     1, true});
}

}  // namespace canzona::harness
