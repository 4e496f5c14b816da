// A cluster of GPUs as the simulator sees it: one file of experiments/clusters, each figure with its source.
#pragma once

#include <compare>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/plan/cost.hpp"

namespace canzona::harness {

/// What collectives are measured: by the bytes of the whole buffer, of all_to_all by those that a rank sends.
enum class CollectiveKind { all_reduce, reduce_scatter, all_gather, all_to_all };
std::string_view name_of(CollectiveKind kind);

/// The achieved rate of one matrix product, m × k by k × n.
struct ProductRate {
  double m = 0;
  double n = 0;
  double k = 0;
  double flops_per_second = 0;

  double size() const;  ///< (m·n·k)^⅓
};

/// By ascending size.
struct ProductRates {
  std::vector<ProductRate> plain;
  std::vector<ProductRate> symmetric;  ///< of A·Aᵀ, in FLOPs of the whole product; empty where it is made like others
};

struct Gpu {
  std::string name;
  double memory_bytes = 0;  ///< that it has; 0: not known
  double memory_bytes_per_second = 0;
  double agreement_bytes_per_second = 0;  ///< of gradients read for their exact sum of squares; 0: as memory
  double softmax_bytes_per_second = 0;    ///< of scores made probabilities; 0: as memory
  double launch_seconds = 0;              ///< of one kernel
  ProductRates rates;                     ///< of operands of the weights' type
  ProductRates fp32_rates;                ///< of fp32 operands beside narrower weights; empty: a fraction of those
  double fp32_product_fraction = 1;
  /// Measured seconds of one factorization by size, ascending; a kind that was not measured is absent.
  std::map<Factorization::Kind, std::vector<std::pair<double, double>>> factorization_seconds;
};

/// What was measured, over how many ranks and nodes.
struct MeasuredCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 0;
  int nodes = 1;

  auto operator<=>(const MeasuredCollective&) const = default;
};

struct Cluster {
  std::string name;
  int gpus = 0;
  int gpus_per_node = 0;
  Gpu gpu;
  double nvlink_bytes_per_second = 0;  ///< one way, per GPU
  double nic_bytes_per_second = 0;     ///< one way, per GPU
  /// Fraction of the nominal bandwidth that a collective over all GPUs of its nodes reaches: for each size in bytes,
  /// ascending, by number of nodes, ascending.
  std::vector<std::pair<double, std::vector<std::pair<double, double>>>> efficiency;

  /// Measured collectives, instead of a network: seconds by bytes, ascending.
  std::map<MeasuredCollective, std::vector<std::pair<double, double>>> collective_seconds;

  DType weights = DType::bf16;  ///< and updates, on the wire and in memory
  /// Forward and backward are what the engine does: layer_work in fp32, and a pass over the gradients.
  bool trains_as_engine = false;
  /// Where ranks run on a host's cores; with a single one, what overlaps takes turns on it. 0: they do not.
  int cores_per_rank = 0;

  bool can_overlap() const { return cores_per_rank != 1; }

  /// Interpolated in both logarithms; the nearest row and column beyond the table.
  double efficiency_at(double bytes, double nodes) const;
  double efficiency_of_large(double nodes) const;
};

/// FLOP/s of a product. Where every rate is of a cube (published tables give one size), they are interpolated by size;
/// where a file gives all three dimensions, the rate is that of the product nearest in (log m, log n, log k).
double product_rate(const std::vector<ProductRate>& rates, double m, double n, double k);

/// Reads `path`. Throws InputError naming the file, the key, its value and what is allowed.
Cluster read_cluster(const std::filesystem::path& path);

/// A cluster by its name in experiments/clusters, or by path. Throws InputError listing the names.
Cluster find_cluster(const std::string& name_or_path);

/// y at x from (x, y) points with ascending x: linear in log x between points, the nearest point's beyond them.
double interpolate(const std::vector<std::pair<double, double>>& points, double x);

}  // namespace canzona::harness
