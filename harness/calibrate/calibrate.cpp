#include "harness/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "harness/calibrate/figures.hpp"
#include "harness/calibrate/probes.hpp"
#include "harness/run/timing.hpp"

namespace canzona::harness {
namespace {

using optimized::Rank;

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
  const auto samples = samples_of_all();
  std::vector<double> seconds;
  for (std::size_t figure = 0; figure < samples_.size(); ++figure) {
    std::vector<double> all;
    for (const auto& own : samples) all.insert(all.end(), own[figure].begin(), own[figure].end());
    seconds.push_back(midmean_of(std::move(all)));
  }
  return cluster_of(seconds);
}

std::vector<std::vector<Cluster>> Calibration::rounds() {
  const auto samples = samples_of_all();
  std::vector<std::vector<Cluster>> rounds(samples_.front().size());
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    for (const auto& of_rank : samples) {
      std::vector<double> seconds;
      for (std::size_t figure = 0; figure < samples_.size(); ++figure) {
        double sum = 0;
        for (const auto& own : samples) sum += own[figure][round];
        const bool is_collective = probes_->all()[figure].is_collective;
        seconds.push_back(is_collective ? sum / static_cast<double>(samples.size()) : of_rank[figure][round]);
      }
      rounds[round].push_back(cluster_of(seconds));
    }
  }
  return rounds;
}

/// By rank, figure and round.
std::vector<std::vector<std::vector<double>>> Calibration::samples_of_all() {
  std::vector<std::vector<std::vector<double>>> all;
  for (const std::string& text : rank_.world.all_gather(nlohmann::json(samples_).dump()))
    all.push_back(nlohmann::json::parse(text).get<std::vector<std::vector<double>>>());
  return all;
}

/// From the seconds of each figure.
Cluster Calibration::cluster_of(const std::vector<double>& seconds) const {
  Cluster cluster;
  cluster.gpus = static_cast<int>(machines_.hosts.size());
  cluster.gpus_per_node = machines_.ranks_on(machines_.hosts.front());
  if (machines_.devices.front().empty())  // the host's cores
    cluster.cores_per_rank = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / cluster.gpus_per_node);
  cluster.weights = type_;
  cluster.trains_as_engine = true;
  for (std::size_t figure = 0; figure < seconds.size(); ++figure)
    probes_->all()[figure].enter(cluster, seconds[figure]);
  for (ProductRates* rates : {&cluster.gpu.rates, &cluster.gpu.fp32_rates}) {
    for (auto* own : {&rates->plain, &rates->symmetric})
      std::stable_sort(own->begin(), own->end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  }
  return cluster;
}

}  // namespace canzona::harness
