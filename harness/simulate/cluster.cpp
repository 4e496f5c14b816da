#include "harness/simulate/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/experiment/paths.hpp"
#include "harness/experiment/toml_file.hpp"
#include "reference/core/error.hpp"
#include "reference/mesh/mesh.hpp"

namespace canzona::harness {
namespace {

constexpr double kTiny = 1e-12;
constexpr double kHuge = 1e18;
constexpr std::array kCollectiveKinds{CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                      CollectiveKind::all_gather, CollectiveKind::all_to_all};

/// A figure without its source is refused.
void source_of(TomlTable& table) {
  if (table.text("source").empty()) throw InputError(table.origin(), "'source'", "''", "where the figure comes from");
}

/// { value = …, source = "…" }
double sourced(TomlTable& table, const std::string& key, double low, double high) {
  TomlTable figure = table.table(key);
  const double value = figure.number("value", low, high);
  source_of(figure);
  figure.finish();
  return value;
}

void require_ascending(const std::string& origin, const std::string& key,
                       const std::vector<std::pair<double, double>>& points) {
  for (std::size_t index = 1; index < points.size(); ++index) {
    if (points[index].first <= points[index - 1].first) {
      throw InputError(origin, fmt::format("'{}'", key),
                       fmt::format("{} after {}", points[index].first, points[index - 1].first), "ascending values");
    }
  }
}

/// nodes, bytes, and a row of fractions for each of bytes.
auto read_efficiency(TomlTable table) {
  const std::vector<double> nodes = table.numbers("nodes", 1, kMostRanks);
  const std::vector<double> bytes = table.numbers("bytes", 1, kHuge);
  const std::vector<std::vector<double>> rows = table.rows("fraction", kTiny, 1);
  source_of(table);
  table.finish();
  const auto require_size = [&](std::size_t size, const std::vector<double>& keys, const char* name) {
    if (size != keys.size()) {
      throw InputError(table.origin(), "'fraction'", fmt::format("a table with {} values", size),
                       fmt::format("one for each of '{}' ({})", name, keys.size()));
    }
  };
  require_size(rows.size(), bytes, "bytes");
  decltype(Cluster::efficiency) efficiency;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    require_size(rows[row].size(), nodes, "nodes");
    auto& [size, points] = efficiency.emplace_back(bytes[row], std::vector<std::pair<double, double>>{});
    for (std::size_t column = 0; column < nodes.size(); ++column) points.emplace_back(nodes[column], rows[row][column]);
    require_ascending(table.origin(), "nodes", points);
    if (row > 0 && size <= bytes[row - 1]) {
      throw InputError(table.origin(), "'bytes'", fmt::format("{} after {}", size, bytes[row - 1]), "ascending values");
    }
  }
  return efficiency;
}

bool is_cube(const ProductRate& rate) { return rate.m == rate.n && rate.n == rate.k; }

/// size, or m, n and k; teraflops; source.
ProductRate read_product(TomlTable& product) {
  ProductRate rate;
  if (product.has("size")) {
    rate.m = rate.n = rate.k = product.number("size", 1, kHuge);
  } else {
    rate.m = product.number("m", 1, kHuge);
    rate.n = product.number("n", 1, kHuge);
    rate.k = product.number("k", 1, kHuge);
  }
  rate.flops_per_second = product.number("teraflops", kTiny, 1e9) * 1e12;
  source_of(product);
  product.finish();
  return rate;
}

/// kind (eigh or qr), n, seconds, source.
void read_factorization(TomlTable& table, Gpu& gpu) {
  const std::string kind = table.text("kind");
  if (kind != "eigh" && kind != "qr") throw InputError(table.origin(), "'kind'", "'" + kind + "'", "eigh, qr");
  auto& points = gpu.factorization_seconds[kind == "eigh" ? Factorization::Kind::eigh : Factorization::Kind::qr];
  const double size = table.number("n", 1, kHuge);
  points.emplace_back(size, table.number("seconds", kTiny, 1e6));
  require_ascending(table.origin(), "n", points);
  source_of(table);
  table.finish();
}

/// All by size or all by m, n and k; ascending.
void read_products(TomlTable& file, const std::string& key, std::vector<ProductRate>& rates) {
  std::size_t by_size = 0;
  for (TomlTable& product : file.tables(key)) {
    by_size += product.has("size") ? 1 : 0;
    rates.push_back(read_product(product));
  }
  if (by_size != 0 && by_size != rates.size()) {
    throw InputError(file.origin(), fmt::format("'{}'", key), "cubes and other shapes together",
                     "all with 'size', or all with 'm', 'n', 'k'");
  }
  for (std::size_t index = 1; index < rates.size(); ++index) {
    if (rates[index].size() < rates[index - 1].size() ||
        (by_size != 0 && rates[index].size() == rates[index - 1].size())) {
      throw InputError(file.origin(), fmt::format("'{}'", key),
                       fmt::format("size {} after {}", rates[index].size(), rates[index - 1].size()),
                       "ascending sizes");
    }
  }
}

/// kind, ranks, nodes [1], bytes and seconds by bytes, source.
void read_collective(TomlTable& table, Cluster& cluster) {
  const std::string name = table.text("kind");
  std::string names;
  const CollectiveKind* found = nullptr;
  for (const CollectiveKind& kind : kCollectiveKinds) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(kind));
    if (name == name_of(kind)) found = &kind;
  }
  if (found == nullptr) throw InputError(table.origin(), "'kind'", "'" + name + "'", names);
  const int ranks = static_cast<int>(table.integer("ranks", 2, kMostRanks));
  const std::vector<double> bytes = table.numbers("bytes", 1, kHuge);
  const std::vector<double> seconds = table.numbers("seconds", kTiny, 1e6);
  if (bytes.size() != seconds.size()) {
    throw InputError(table.origin(), "'seconds'", fmt::format("{} values", seconds.size()),
                     fmt::format("one for each of 'bytes' ({})", bytes.size()));
  }
  const int nodes = table.has("nodes") ? static_cast<int>(table.integer("nodes", 1, ranks)) : 1;
  auto& points = cluster.collective_seconds[{*found, ranks, nodes}];
  for (std::size_t index = 0; index < bytes.size(); ++index) points.emplace_back(bytes[index], seconds[index]);
  require_ascending(table.origin(), "bytes", points);
  source_of(table);
  table.finish();
}

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::all_to_all: return "all_to_all";
  }
  throw Error("no such collective");
}

double Cluster::efficiency_at(double bytes, double nodes) const {
  std::vector<std::pair<double, double>> by_bytes;
  for (const auto& [size, by_nodes] : efficiency) by_bytes.emplace_back(size, interpolate(by_nodes, nodes));
  return interpolate(by_bytes, bytes);
}

double Cluster::efficiency_of_large(double nodes) const { return interpolate(efficiency.back().second, nodes); }

double ProductRate::size() const { return std::cbrt(m * n * k); }

double product_rate(const std::vector<ProductRate>& rates, double m, double n, double k) {
  if (std::all_of(rates.begin(), rates.end(), is_cube)) {
    std::vector<std::pair<double, double>> by_size;
    for (const ProductRate& rate : rates) by_size.emplace_back(rate.size(), rate.flops_per_second);
    return interpolate(by_size, std::cbrt(m * n * k));
  }
  const auto distance = [&](const ProductRate& rate) {
    return std::hypot(std::log(rate.m / m), std::log(rate.n / n), std::log(rate.k / k));
  };
  return std::min_element(rates.begin(), rates.end(),
                          [&](const ProductRate& a, const ProductRate& b) { return distance(a) < distance(b); })
      ->flops_per_second;
}

Cluster read_cluster(const std::filesystem::path& path) {
  const toml::table table = read_toml(path);
  TomlTable file(table, path.string());
  Cluster cluster;
  cluster.name = path.stem().string();
  cluster.gpus = static_cast<int>(file.integer("gpus", 1, kMostRanks));
  cluster.gpus_per_node = static_cast<int>(file.integer("gpus_per_node", 1, kMostRanks));

  if (cluster.gpus % cluster.gpus_per_node != 0) {
    throw InputError(path.string(), "'gpus_per_node'", std::to_string(cluster.gpus_per_node),
                     fmt::format("a divisor of 'gpus' ({})", cluster.gpus));
  }

  TomlTable gpu = file.table("gpu");
  cluster.gpu.name = gpu.text("name");
  if (gpu.has("memory_bytes")) cluster.gpu.memory_bytes = sourced(gpu, "memory_bytes", 1, kHuge);
  cluster.gpu.memory_bytes_per_second = sourced(gpu, "memory_bytes_per_second", 1, kHuge);
  if (gpu.has("agreement_bytes_per_second"))
    cluster.gpu.agreement_bytes_per_second = sourced(gpu, "agreement_bytes_per_second", 1, kHuge);
  if (gpu.has("softmax_bytes_per_second"))
    cluster.gpu.softmax_bytes_per_second = sourced(gpu, "softmax_bytes_per_second", 1, kHuge);
  cluster.gpu.launch_seconds = sourced(gpu, "launch_seconds", 0, 1);
  cluster.gpu.fp32_product_fraction = sourced(gpu, "fp32_product_fraction", kTiny, 1);
  gpu.finish();

  if (file.has("collective")) {
    for (TomlTable& collective : file.tables("collective")) read_collective(collective, cluster);
  } else if (cluster.gpus > 1 || file.has("network")) {
    TomlTable network = file.table("network");
    cluster.nvlink_bytes_per_second = sourced(network, "nvlink_bytes_per_second", 1, kHuge);
    cluster.nic_bytes_per_second = sourced(network, "nic_bytes_per_second", 1, kHuge);
    network.finish();
    cluster.efficiency = read_efficiency(file.table("efficiency"));
  }
  cluster.weights = parse_dtype(file.text("weights", "bf16"), path.string());
  const std::string training = file.text("forward_backward", "model");
  if (training != "model" && training != "engine")
    throw InputError(path.string(), "'forward_backward'", "'" + training + "'", "model, engine");
  cluster.trains_as_engine = training == "engine";
  if (file.has("cores_per_rank")) cluster.cores_per_rank = static_cast<int>(file.integer("cores_per_rank", 1, 1 << 20));

  read_products(file, "gemm", cluster.gpu.rates.plain);
  if (file.has("symmetric")) read_products(file, "symmetric", cluster.gpu.rates.symmetric);
  if (file.has("gemm_fp32")) read_products(file, "gemm_fp32", cluster.gpu.fp32_rates.plain);
  if (file.has("symmetric_fp32")) read_products(file, "symmetric_fp32", cluster.gpu.fp32_rates.symmetric);
  if (file.has("factorization")) {
    for (TomlTable& table : file.tables("factorization")) read_factorization(table, cluster.gpu);
  }
  file.finish();
  return cluster;
}

Cluster find_cluster(const std::string& name_or_path) {
  namespace fs = std::filesystem;
  const bool is_path = name_or_path.find('/') != std::string::npos || fs::path(name_or_path).extension() == ".toml";
  if (is_path) return read_cluster(name_or_path);
  const fs::path folder = project_folder() / "experiments/clusters";
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) {
    throw InputError("", "cluster", "'" + name_or_path + "'",
                     fmt::format("{}, or the path of a TOML file", fmt::join(names, ", ")));
  }
  return read_cluster(folder / (name_or_path + ".toml"));
}

double interpolate(const std::vector<std::pair<double, double>>& points, double x) {
  if (x <= points.front().first) return points.front().second;
  for (std::size_t index = 1; index < points.size(); ++index) {
    const auto& [x0, y0] = points[index - 1];
    const auto& [x1, y1] = points[index];
    if (x <= x1) return y0 + (y1 - y0) * std::log(x / x0) / std::log(x1 / x0);
  }
  return points.back().second;
}

}  // namespace canzona::harness
