// Who computes a symmetric product in two bytes on a GPU: cuBLAS, which computes it whole, or the kernel of
// symmetric_tiles.hpp, which computes half of it less well.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace canzona::optimized {

enum class SymmetricWay { table, cublas, tiles };

const std::vector<std::string>& symmetric_ways();
SymmetricWay parse_symmetric_way(const std::string& name);

/// From these on, on GPUs of one generation, the kernel was faster.
struct FasterFrom {
  int generation;  ///< the major compute capability: 8, 9, 10
  std::int64_t n;
  std::int64_t tiles;  ///< of all matrices of the stack together
};

/// Measured by benchmark_symmetric_products, which tests/device/check.sh runs. No GPU has been measured yet: cuBLAS
/// computes everything.
constexpr std::array<FasterFrom, 0> kFasterFrom{};

/// Who computes what on one GPU.
struct SymmetricChoice {
  SymmetricWay way;
  int generation;

  /// Of n × n results, `tiles` of the kernel's in all.
  bool takes_tiles(std::int64_t n, std::int64_t tiles) const;
};

}  // namespace canzona::optimized
