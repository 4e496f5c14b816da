// How long each step of a schedule takes on a cluster: the only place where work becomes time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "harness/simulate/network.hpp"
#include "reference/model/layer_work.hpp"
#include "reference/plan/traffic.hpp"
#include "reference/schedule/schedule.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// Simulated time: whole nanoseconds, so that equal inputs give equal sums on every machine.
using Nanoseconds = std::int64_t;

/// What one iteration trains on.
struct TrainingShape {
  std::int64_t tokens = 8192;    ///< per data-parallel rank and iteration: every GPU of its TP group sees them all
  std::int64_t sequence = 4096;  ///< tokens a sequence
};

/// A job may take a part of a cluster, but of a measured one all. Throws InputError where the mesh does not fit.
void require_fitting(const Mesh& mesh, const Cluster& cluster);

/// Whether some duration of the workload stands on no measurement: eigh or QR without a table in the cluster file or
/// beyond its sizes, or a nominal count of iterations.
bool is_low_confidence(const Workload& workload, const Cluster& cluster);

/// The duration of any step of any rank. Throws InputError where the mesh does not fit the cluster, or several
/// micro-batches, or the engine's one, do not share the tokens in whole sequences.
class Durations {
 public:
  Durations(const ModelConfig& config, const Workload& workload, const Cluster& cluster, const Network& network,
            const TrainingShape& training, const WireTypes& wire, Uneven uneven);

  /// What `rank` takes for `action` in an iteration, which matters to refreshes; for a collective, what all of its
  /// group take from the moment that the last has arrived.
  Nanoseconds of(const Action& action, int rank, std::int64_t iteration) const;

  /// A product of m × k by k × n, and elementwise work: launch time included, never faster than memory.
  double product_seconds(double m, double n, double k, DType type = DType::bf16, bool is_symmetric = false) const;
  /// Of operands of the weights' type; a stack of them is launched once.
  double product_seconds(const Product& product) const;
  double memory_seconds(double bytes) const;
  double seconds_of(const MatrixCost& cost) const;

 private:
  struct LayerSeconds {
    double forward = 0;
    double backward = 0;
  };

  double weight_bytes() const { return static_cast<double>(bytes_of(wire_.parameter)); }
  double applied_bytes() const;
  LayerSeconds decoder_layer(const ModelConfig& config) const;
  LayerSeconds embedding(const ModelConfig& config) const;
  LayerSeconds output(const ModelConfig& config) const;
  LayerSeconds engine_layer(int layer) const;
  double operations_seconds(const std::vector<LayerOperation>& operations) const;
  double attention_seconds(const AttentionPass& pass) const;
  double agree_seconds(bool over_tp) const;
  double elements_seconds(int bucket, int dp_rank) const;
  double reduce_seconds(int bucket) const;
  double gather_parameters_seconds(int bucket) const;
  double shards_seconds(const MicroGroup& group, bool scatter) const;

  const Workload& workload_;
  Cluster cluster_;
  const Network& network_;
  TrainingShape training_;
  WireTypes wire_;
  Uneven uneven_;
  CommunicationGroup dp_;
  CommunicationGroup tp_;
  std::vector<LayerSeconds> layers_;
  std::vector<Nanoseconds> updates_;                 // by parameter, without a refresh
  std::vector<std::vector<Nanoseconds>> refreshes_;  // by parameter and block: what one adds
  std::array<Nanoseconds, 2> agreements_{};          // over DP, over TP
  std::vector<Nanoseconds> reductions_;
  std::vector<Nanoseconds> gathers_;
};

/// One factorization: from the cluster's table, a power law between its sizes, n³ above them, never less
/// than the smallest. Without one, a model
/// of low confidence: for each column two dependent kernels and, for eigh, a pass over the trailing matrix (the
/// reduction to tridiagonal form); the other FLOPs as fp32 products.
double factorization_seconds(const Gpu& gpu, const Factorization& factorization);

/// Rounded. Throws InputError when a step would take more than a day.
Nanoseconds nanoseconds(double seconds);

}  // namespace canzona::harness
