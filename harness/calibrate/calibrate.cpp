#include "harness/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "harness/calibrate/figures.hpp"
#include "harness/record/provenance.hpp"
#include "harness/run/timing.hpp"
#include "harness/simulate/network.hpp"
#include "optimized/device/passes.hpp"
#include "optimized/engine/attention.hpp"
#include "reference/core/exact_sum.hpp"
#include "reference/core/random.hpp"
#include "reference/model/layer_work.hpp"

namespace canzona::harness {
namespace {

using optimized::Buffer;
using optimized::DevicePointer;
using optimized::Rank;
using optimized::Transpose;

constexpr double kPassBytes = 16;  // an element of halve_and_add
/// Of what only has to be more than any cache holds: a whole large model would leave no memory for the rest.
constexpr std::int64_t kMostElements = std::int64_t{1} << 27;

/// One figure: what is timed, and how it enters the cluster.
struct Probe {
  std::function<void(optimized::Stream&)> start;
  std::function<void(Cluster&, double seconds)> enter;
  std::int64_t repeats = 1;  ///< in one timing
};

}  // namespace

/// The probes of a rank and the memory that they work on.
class Probes {
 public:
  Probes(Rank& rank, const CalibrationRequest& request, const Workload& workload, int ranks_per_node)
      : rank_(rank), workload_(workload), type_(request.type), stream_(rank.device.make_stream()) {
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

  std::vector<Probe>& all() { return probes_; }

  double seconds(const Probe& probe) {
    stream_->record(*begun_);
    for (std::int64_t repeat = 0; repeat < probe.repeats; ++repeat) probe.start(*stream_);
    stream_->record(*ended_);
    stream_->synchronize();
    return (ended_->seconds() - begun_->seconds()) / static_cast<double>(probe.repeats);
  }

  void finish() { stream_->synchronize(); }

 private:
  DevicePointer<float> elements(std::int64_t count) {
    return buffers_.emplace_back(rank_.device.allocate_elements<float>(count)).as<float>();
  }

  void add_launch() {
    const DevicePointer<float> one = elements(1);
    probes_.push_back({[one](optimized::Stream& stream) { optimized::halve_and_add(stream, 1, one, one, one); },
                       [](Cluster& cluster, double seconds) { cluster.gpu.launch_seconds = seconds; }});
  }

  /// Matrix after matrix, as a step goes over them: each is cold when its turn comes.
  void add_pass() {
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
  void add_agreement() {
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
  void add_softmax(const std::vector<LayerOperation>& operations) {
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

  void add_products(const std::set<ProductKey>& keys) {
    std::int64_t largest = 0;
    for (const ProductKey& key : keys)
      largest = std::max({largest, key.count * key.m * key.k, key.count * key.k * key.n, key.count * key.m * key.n});
    operands_ = {elements(largest), elements(largest), elements(largest)};
    weight_count_ = std::max(std::min(workload_.buffer.numel(), kMostElements), largest);
    weights_ = elements(weight_count_);
    for (const ProductKey& key : keys) {
      probes_.push_back({[this, key](optimized::Stream& stream) {
                           optimized::with_weight_type(key.type, [&]<class T>(T) { multiply<T>(stream, key); });
                         },
                         [this, key](Cluster& cluster, double seconds) { enter_products(cluster, key, seconds); }});
    }
  }

  template <class T>
  static DevicePointer<T> as(DevicePointer<float> floats) {
    return DevicePointer<T>(reinterpret_cast<T*>(floats.raw()));
  }

  template <class T>
  void multiply(optimized::Stream& stream, const ProductKey& key) {
    const auto [kind, type, m, n, k, count] = key;
    const auto A = as<T>(operands_[0]), B = as<T>(operands_[1]);
    auto& algebra = rank_.device.linear_algebra().in<T>();
    const optimized::MatrixView<T> out{as<T>(operands_[2]), m, n};
    const Transpose no = Transpose::no, yes = Transpose::yes;
    switch (kind) {
      case ProductKind::plain: return algebra.products(stream, 1, {A, m, k}, no, {B, k, n}, no, 0, out, count);
      case ProductKind::right_transposed:
        return algebra.products(stream, 1, {A, m, k}, no, {B, n, k}, yes, 0, out, count);
      case ProductKind::left_transposed:
        return algebra.products(stream, 1, {A, k, m}, yes, {B, k, n}, no, 0, out, count);
      case ProductKind::symmetric: return algebra.symmetric_product(stream, 1, {A, m, k}, no, 0, out);
      case ProductKind::forward:
        return algebra.product(stream, 1, {A, m, k}, no, {next_weights<T>(k * n), n, k}, yes, 0, out);
      case ProductKind::input_gradient:
        return algebra.product(stream, 1, {A, m, k}, no, {next_weights<T>(k * n), k, n}, no, 0, out);
    }
  }

  /// Other ones each time: by the time that they recur, a whole model has passed through the cache.
  template <class T>
  DevicePointer<T> next_weights(std::int64_t count) {
    if (next_weight_ + count > weight_count_) next_weight_ = 0;
    const DevicePointer<T> weights = as<T>(weights_) + next_weight_;
    next_weight_ += count;
    return weights;
  }

  /// Where two kinds have one shape, the rate is that of both together.
  void enter_products(Cluster& cluster, const ProductKey& key, double seconds) const {
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
  void add_factorization(Factorization::Kind kind, std::int64_t n) {
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

  void add_collectives(optimized::Communicator& group, const CommunicationGroup& spread,
                       const std::vector<std::int64_t>& sizes) {
    const int ranks = spread.ranks;
    if (ranks == 1) return;
    const auto data = elements(sizes.back() / static_cast<std::int64_t>(sizeof(float)));
    const auto other = elements(sizes.back() / static_cast<std::int64_t>(sizeof(float)));
    for (const std::int64_t bytes : sizes) {
      const Range all{0, bytes / static_cast<std::int64_t>(sizeof(float))};
      optimized::Shares shares;
      for (const Range& range : even_ranges(all, ranks)) shares.push_back({range});
      optimized::Transfer transfer(ranks);
      const std::int64_t piece = all.size() / (ranks - 1);
      for (int member = 0; member < ranks; ++member) {
        if (member == group.rank()) continue;
        const int place = (member - group.rank() + ranks) % ranks - 1;
        transfer.add_send(member, data + place * piece, piece);
        transfer.add_receive(member, other + place * piece, piece);
      }
      add_collective(CollectiveKind::all_reduce, spread, bytes, group.all_reduce(rank_.device, data, all, DType::fp32));
      add_collective(CollectiveKind::reduce_scatter, spread, bytes,
                     group.reduce_scatter(rank_.device, data, shares, DType::fp32));
      add_collective(CollectiveKind::all_gather, spread, bytes, group.all_gather(rank_.device, data, shares));
      add_collective(CollectiveKind::all_to_all, spread, bytes, group.all_to_all(std::move(transfer)));
    }
  }

  void add_collective(CollectiveKind kind, const CommunicationGroup& spread, std::int64_t bytes,
                      std::unique_ptr<optimized::Collective> collective) {
    auto& own = *collectives_.emplace_back(std::move(collective));
    probes_.push_back({[&own](optimized::Stream& stream) { own.start(stream); },
                       [kind, spread, bytes](Cluster& cluster, double seconds) {
                         cluster.collective_seconds[{kind, spread.ranks, spread.nodes}].emplace_back(
                             static_cast<double>(bytes), seconds);
                       }});
  }

  Rank& rank_;
  const Workload& workload_;
  const DType type_;
  std::vector<Buffer> buffers_;
  std::array<DevicePointer<float>, 3> operands_;
  DevicePointer<float> weights_;
  std::int64_t weight_count_ = 0;
  std::int64_t next_weight_ = 0;
  std::vector<std::unique_ptr<optimized::Collective>> collectives_;
  std::vector<Probe> probes_;
  std::unique_ptr<optimized::Event> begun_ = rank_.device.make_event();
  std::unique_ptr<optimized::Event> ended_ = rank_.device.make_event();
  std::unique_ptr<optimized::Stream> stream_;  // last: it ends before what it uses goes
};

namespace {

/// The slowest of the ranks decides how often each repeats, so that collectives agree.
std::int64_t repeats_for(Rank& rank, double seconds) {
  double slowest = 0;
  for (const std::string& text : rank.world.all_gather(fmt::format("{}", seconds)))
    slowest = std::max(slowest, std::stod(text));
  constexpr double kTiming = 0.02;
  constexpr double kMost = 1000;
  return static_cast<std::int64_t>(std::clamp(kTiming / std::max(slowest, 1e-9), 1.0, kMost));
}

}  // namespace

std::size_t count_figures(const CalibrationRequest& request, const Workload& workload) {
  std::size_t collectives = 0;
  for (const int ranks : std::set<int>{workload.mesh.dp, workload.mesh.tp})
    collectives += ranks > 1 ? 4 * collective_sizes(workload, request.tokens).size() : 0;
  return static_cast<std::size_t>(request.rounds) * (4 + products_of(workload, request.tokens, request.type).size() +
                                                     factorizations_of(workload).size() + collectives);
}

Calibration::Calibration(Rank& rank, const CalibrationRequest& request, const Workload& workload)
    : rank_(rank),
      type_(request.type),
      machines_(machines_of(rank)),
      probes_(std::make_unique<Probes>(rank, request, workload, machines_.ranks_on(machines_.hosts.front()))),
      samples_(probes_->all().size()) {
  for (Probe& probe : probes_->all()) {
    probes_->seconds(probe);  // the first time memory is touched
    probe.repeats = repeats_for(rank, probes_->seconds(probe));
  }
}

Calibration::~Calibration() = default;

void Calibration::finish() { probes_->finish(); }

void Calibration::measure_round(const std::function<void()>& advance) {
  for (std::size_t index = 0; index < samples_.size(); ++index) {
    rank_.world.all_gather("");
    samples_[index].push_back(probes_->seconds(probes_->all()[index]));
    if (rank_.index == 0) advance();
  }
}

Cluster Calibration::cluster() {
  std::vector<std::vector<double>> of_all(samples_.size());
  for (const std::string& text : rank_.world.all_gather(nlohmann::json(samples_).dump())) {
    const auto others = nlohmann::json::parse(text).get<std::vector<std::vector<double>>>();
    for (std::size_t index = 0; index < samples_.size(); ++index)
      of_all[index].insert(of_all[index].end(), others[index].begin(), others[index].end());
  }
  Cluster cluster;
  cluster.gpus = static_cast<int>(machines_.hosts.size());
  cluster.gpus_per_node = machines_.ranks_on(machines_.hosts.front());
  if (machines_.devices.front().empty())  // the host's cores
    cluster.cores_per_rank = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / cluster.gpus_per_node);
  cluster.weights = type_;
  cluster.trains_as_engine = true;
  for (std::size_t index = 0; index < samples_.size(); ++index)
    probes_->all()[index].enter(cluster, midmean_of(of_all[index]));
  for (ProductRates* rates : {&cluster.gpu.rates, &cluster.gpu.fp32_rates}) {
    for (auto* own : {&rates->plain, &rates->symmetric})
      std::stable_sort(own->begin(), own->end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  }
  return cluster;
}

}  // namespace canzona::harness
