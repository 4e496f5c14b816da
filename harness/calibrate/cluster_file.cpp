// A calibrated cluster as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/calibrate/calibrate.hpp"

namespace canzona::harness {
namespace {

std::string sourced(const char* key, double value, const std::string& source) {
  return fmt::format("{} = {{ value = {:.6g}, source = \"{}\" }}\n", key, value, source);
}

std::string products(const char* key, const std::vector<ProductRate>& rates, const std::string& source) {
  std::string text;
  for (const ProductRate& rate : rates) {
    text += fmt::format("\n[[{}]]\nm = {:.0f}\nn = {:.0f}\nk = {:.0f}\nteraflops = {:.6g}\nsource = \"{}\"\n", key,
                        rate.m, rate.n, rate.k, rate.flops_per_second * 1e-12, source);
  }
  return text;
}

}  // namespace

std::string cluster_file(const Cluster& cluster, const std::string& source) {
  const auto weights = name_of(cluster.weights);
  std::string text = fmt::format(
      "# {} ranks, measured with the engine's own calls while all of them worked.\ngpus = {}\ngpus_per_node = {}\n",
      cluster.gpus, cluster.gpus, cluster.gpus_per_node);
  if (cluster.cores_per_rank > 0) {
    text += fmt::format("# With one core a rank, what overlaps takes turns on it.\ncores_per_rank = {}\n",
                        cluster.cores_per_rank);
  }
  text += fmt::format(
      "# What the engine does in forward and backward; weights and updates in {0}.\n"
      "forward_backward = \"engine\"\nweights = \"{0}\"\n\n[gpu]\nname = \"{1}\"\n",
      weights, cluster.gpu.name);
  text += sourced("memory_bytes_per_second", cluster.gpu.memory_bytes_per_second, source);
  text += sourced("agreement_bytes_per_second", cluster.gpu.agreement_bytes_per_second, source);
  text += sourced("softmax_bytes_per_second", cluster.gpu.softmax_bytes_per_second, source);
  text += sourced("launch_seconds", cluster.gpu.launch_seconds, source);
  text += sourced("fp32_product_fraction", 1, "what was measured in fp32 stands below");
  text += fmt::format("\n# Rates of products in {}, and of A·Aᵀ in FLOPs of the whole product.\n", weights);
  text += products("gemm", cluster.gpu.rates.plain, source);
  text += products("symmetric", cluster.gpu.rates.symmetric, source);
  text += products("gemm_fp32", cluster.gpu.fp32_rates.plain, source);
  text += products("symmetric_fp32", cluster.gpu.fp32_rates.symmetric, source);
  for (const auto& [kind, points] : cluster.gpu.factorization_seconds) {
    for (const auto& [n, seconds] : points) {
      text += fmt::format("\n[[factorization]]\nkind = \"{}\"\nn = {:.0f}\nseconds = {:.6g}\nsource = \"{}\"\n",
                          name_of(kind), n, seconds, source);
    }
  }
  for (const auto& [key, points] : cluster.collective_seconds) {
    std::vector<std::string> bytes, seconds;
    for (const auto& [size, time] : points) {
      bytes.push_back(fmt::format("{:.0f}", size));
      seconds.push_back(fmt::format("{:.6g}", time));
    }
    text += fmt::format(
        "\n[[collective]]\nkind = \"{}\"\nranks = {}\nnodes = {}\nbytes = [{}]\nseconds = [{}]\nsource = \"{}\"\n",
        name_of(key.kind), key.ranks, key.nodes, fmt::join(bytes, ", "), fmt::join(seconds, ", "), source);
  }
  return text;
}

}  // namespace canzona::harness
