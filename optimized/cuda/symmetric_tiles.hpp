// Symmetric products in two bytes on tensor cores: of the result's tiles only those on the diagonal and above it are
// computed, and each is written twice, the second time as its mirror image. nvcc makes a kernel of it; compiled as C++
// for the emulated GPU, the threads of a block take turns between two barriers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "optimized/device/kernel.hpp"
#include "optimized/device/narrow.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#include <mma.h>
#define CANZONA_DEVICE __device__
#else
#define CANZONA_DEVICE
#endif

namespace canzona::optimized {

/// Of each matrix of a stack: result ← alpha·L·Rᵀ + beta·addend of n × k operands, or alpha·Lᵀ·R + beta·addend of k × n
/// ones where `tall`. Result and addend are n × n and symmetric, and may be one; operands are neither of them.
template <class T>
struct SymmetricProduct {
  std::int64_t n, k, count;
  bool tall;
  float alpha, beta;
  const T* left;
  const T* right;
  const T* addend;
  T* result;
};

namespace gpu {
inline namespace CANZONA_TARGET {

/// What a warp multiplies at once: 16 × 16 blocks of operands in shared memory, rows `pitch` elements apart. Where
/// `tall`, a block of L stands there transposed; else one of R.
namespace tensor_core {

constexpr int kSide = 16;

#if defined(__CUDACC__)
template <class T>
using Element = std::conditional_t<std::is_same_v<T, Bf16>, __nv_bfloat16, __half>;
template <bool tall>
using LeftLayout = std::conditional_t<tall, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;
template <bool tall>
using RightLayout = std::conditional_t<tall, nvcuda::wmma::row_major, nvcuda::wmma::col_major>;
template <class T, bool tall>
using Left = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, kSide, kSide, kSide, Element<T>, LeftLayout<tall>>;
template <class T, bool tall>
using Right = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kSide, kSide, kSide, Element<T>, RightLayout<tall>>;
using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kSide, kSide, kSide, float>;

__device__ inline void clear(Sums& sums) { nvcuda::wmma::fill_fragment(sums, 0.0f); }

template <class T, class Fragment>
__device__ void load(Fragment& fragment, const std::uint16_t* block, int pitch) {
  nvcuda::wmma::load_matrix_sync(fragment, reinterpret_cast<const Element<T>*>(block), pitch);
}

template <class L, class R>
__device__ void multiply(const L& left, const R& right, Sums& sums) {
  nvcuda::wmma::mma_sync(sums, left, right, sums);
}

__device__ inline void store(const Sums& sums, float* block) {
  nvcuda::wmma::store_matrix_sync(block, sums, kSide, nvcuda::wmma::mem_row_major);
}

/// 16 bytes to shared memory, asynchronously; zeros where they are not inside.
__device__ inline void fetch(std::uint16_t* to, const void* from, bool inside) {
  __pipeline_memcpy_async(to, from, 16, inside ? 0 : 16);
}
#else
struct Sums {
  float values[kSide][kSide];
};
template <class T, bool tall>
struct Left {
  static constexpr bool kTurned = tall;
  float values[kSide][kSide];
};
template <class T, bool tall>
struct Right {
  static constexpr bool kTurned = !tall;
  float values[kSide][kSide];
};

inline void clear(Sums& sums) { std::memset(&sums, 0, sizeof sums); }

template <class T, class Fragment>
void load(Fragment& fragment, const std::uint16_t* block, int pitch) {
  for (int row = 0; row < kSide; ++row) {
    for (int col = 0; col < kSide; ++col) {
      T value;
      value.bits = Fragment::kTurned ? block[col * pitch + row] : block[row * pitch + col];
      fragment.values[row][col] = static_cast<float>(value);
    }
  }
}

template <class L, class R>
void multiply(const L& left, const R& right, Sums& sums) {
  for (int row = 0; row < kSide; ++row) {
    for (int inner = 0; inner < kSide; ++inner) {
      for (int col = 0; col < kSide; ++col) sums.values[row][col] += left.values[row][inner] * right.values[inner][col];
    }
  }
}

inline void store(const Sums& sums, float* block) { std::memcpy(block, sums.values, sizeof sums.values); }

inline void fetch(std::uint16_t* to, const void* from, bool inside) {
  inside ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
}
#endif

}  // namespace tensor_core

/// What a block of threads does for one tile, from barrier to barrier: load and multiply in turns, over the depth; then
/// of each of a warp's fragments keep, finish and mirror.
template <class T, bool tall>
class SymmetricTiles {
 public:
  static constexpr int kTile = 128;  // rows and columns of a tile
  static constexpr int kDepth = 32;  // of a step
  static constexpr int kWarps = 8;   // 4 × 2 over the tile
  static constexpr int kLanes = 32;  // of a warp
  static constexpr int kThreads = kWarps * kLanes;
  static constexpr int kFragmentRows = 2, kFragmentCols = 4;  // of a warp
  static constexpr int kFragments = kFragmentRows * kFragmentCols;

  /// One tile of one matrix.
  struct Place {
    std::int64_t matrix;
    std::int64_t row, col;  // of its first element
  };
  struct Sums {
    tensor_core::Sums of[kFragments];
  };
  /// Two steps of operands, as bits; later, of each warp, one fragment.
  union Shared {
    alignas(128) std::uint16_t operands[2][2][(tall ? kDepth : kTile) * ((tall ? kTile : kDepth) + 8)];
    float kept[kWarps][tensor_core::kSide * tensor_core::kSide];
  };

  explicit SymmetricTiles(const SymmetricProduct<T>& own) : own_(own) {
    const auto is_aligned = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
    // Then so is every matrix of the stack.
    fetches_ = (tall ? own.n : own.k) % kFetched == 0 && is_aligned(own.left) && is_aligned(own.right);
  }

  static std::int64_t tiles(std::int64_t n) {
    const std::int64_t side = (n + kTile - 1) / kTile;
    return side * (side + 1) / 2;
  }
  CANZONA_DEVICE std::int64_t steps() const { return (own_.k + kDepth - 1) / kDepth; }

  /// Tiles are counted down the columns, each to the diagonal.
  CANZONA_DEVICE static Place place(std::int64_t tile, std::int64_t matrix) {
    auto col = static_cast<std::int64_t>((std::sqrt(8.0 * static_cast<double>(tile) + 1) - 1) / 2);
    while (col * (col + 1) / 2 > tile) --col;  // a root is not exact
    while ((col + 1) * (col + 2) / 2 <= tile) ++col;
    return {matrix, (tile - col * (col + 1) / 2) * kTile, col * kTile};
  }

  CANZONA_DEVICE static void clear(Sums& sums) {
    for (auto& fragment : sums.of) tensor_core::clear(fragment);
  }

  /// What a thread brings of step `step` to its half of shared memory.
  CANZONA_DEVICE void load(const Place& at, std::int64_t step, int thread, Shared& shared) const {
    load_operand(own_.left, at.matrix, at.row, step, thread, shared.operands[step % 2][0]);
    load_operand(own_.right, at.matrix, at.col, step, thread, shared.operands[step % 2][1]);
  }

  CANZONA_DEVICE static void multiply(std::int64_t step, int warp, const Shared& shared, Sums& sums) {
    const auto& [left, right] = shared.operands[step % 2];
    for (int depth = 0; depth < kDepth; depth += tensor_core::kSide) {
      tensor_core::Left<T, tall> rows[kFragmentRows];
      tensor_core::Right<T, tall> cols[kFragmentCols];
      for (int i = 0; i < kFragmentRows; ++i)
        tensor_core::load<T>(rows[i], left + offset(first_row(warp) + i * tensor_core::kSide, depth), kPitch);
      for (int j = 0; j < kFragmentCols; ++j)
        tensor_core::load<T>(cols[j], right + offset(first_col(warp) + j * tensor_core::kSide, depth), kPitch);
      for (int i = 0; i < kFragmentRows; ++i) {
        for (int j = 0; j < kFragmentCols; ++j) tensor_core::multiply(rows[i], cols[j], sums.of[i * kFragmentCols + j]);
      }
    }
  }

  CANZONA_DEVICE static void keep(int fragment, int warp, const Sums& sums, Shared& shared) {
    tensor_core::store(sums.of[fragment], shared.kept[warp]);
  }

  /// Sums become results, on the diagonal and above it, and are written there.
  CANZONA_DEVICE void finish(const Place& at, int fragment, int warp, int lane, Shared& shared) const {
    for (int own = lane; own < kKept; own += kLanes) {
      const Element element = element_of(at, fragment, warp, own / tensor_core::kSide, own % tensor_core::kSide);
      if (!element.is_inside) continue;
      float value = own_.alpha * shared.kept[warp][own];
      if (own_.beta != 0) value += own_.beta * static_cast<float>(own_.addend[element.above]);
      own_.result[element.above] = static_cast<T>(value);
      shared.kept[warp][own] = value;
    }
  }

  /// The same below the diagonal, neighbours by neighbours there.
  CANZONA_DEVICE void mirror(const Place& at, int fragment, int warp, int lane, const Shared& shared) const {
    for (int own = lane; own < kKept; own += kLanes) {
      const int row = own % tensor_core::kSide, col = own / tensor_core::kSide;
      const Element element = element_of(at, fragment, warp, row, col);
      if (element.is_inside)
        own_.result[element.below] = static_cast<T>(shared.kept[warp][row * tensor_core::kSide + col]);
    }
  }

 private:
  static constexpr int kKept = tensor_core::kSide * tensor_core::kSide;
  static constexpr int kFetched = 8;  // elements of 16 bytes
  static constexpr int kLines = tall ? kDepth : kTile;
  static constexpr int kAlong = tall ? kTile : kDepth;
  static constexpr int kPitch = kAlong + 8;  // so that lines begin in different banks

  struct Element {
    bool is_inside;
    std::int64_t above, below;
  };

  CANZONA_DEVICE static int first_row(int warp) { return warp / 2 * kFragmentRows * tensor_core::kSide; }
  CANZONA_DEVICE static int first_col(int warp) { return warp % 2 * kFragmentCols * tensor_core::kSide; }
  /// Of an operand in shared memory.
  CANZONA_DEVICE static int offset(int of_tile, int depth) {
    return tall ? depth * kPitch + of_tile : of_tile * kPitch + depth;
  }

  CANZONA_DEVICE Element element_of(const Place& at, int fragment, int warp, int row, int col) const {
    const std::int64_t own_row = at.row + first_row(warp) + fragment / kFragmentCols * tensor_core::kSide + row;
    const std::int64_t own_col = at.col + first_col(warp) + fragment % kFragmentCols * tensor_core::kSide + col;
    const std::int64_t begin = at.matrix * own_.n * own_.n;
    return {own_row <= own_col && own_col < own_.n, begin + own_row * own_.n + own_col,
            begin + own_col * own_.n + own_row};
  }

  CANZONA_DEVICE void load_operand(const T* operand, std::int64_t matrix, std::int64_t first, std::int64_t step,
                                   int thread, std::uint16_t* to) const {
    const std::int64_t lines = tall ? own_.k : own_.n, along = tall ? own_.n : own_.k;
    const std::int64_t first_line = tall ? step * kDepth : first, first_along = tall ? first : step * kDepth;
    const T* from = operand + matrix * own_.n * own_.k;
    if (fetches_) {
      for (int piece = thread; piece < kLines * kAlong / kFetched; piece += kThreads) {
        const int line = piece / (kAlong / kFetched), place = piece % (kAlong / kFetched) * kFetched;
        const std::int64_t own_line = first_line + line, own_place = first_along + place;
        const bool inside = own_line < lines && own_place < along;
        tensor_core::fetch(to + line * kPitch + place, inside ? from + own_line * along + own_place : from, inside);
      }
      return;
    }
    for (int element = thread; element < kLines * kAlong; element += kThreads) {
      const int line = element / kAlong, place = element % kAlong;
      const std::int64_t own_line = first_line + line, own_place = first_along + place;
      const bool inside = own_line < lines && own_place < along;
      to[line * kPitch + place] = inside ? from[own_line * along + own_place].bits : std::uint16_t{0};
    }
  }

  SymmetricProduct<T> own_;
  bool fetches_;  // operands come 16 bytes at a time
};

#if defined(__CUDACC__)
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads, 2) run_tiles(Tiles tiles) {
  __shared__ typename Tiles::Shared shared;
  typename Tiles::Sums sums;
  const auto at = Tiles::place(blockIdx.x, blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / Tiles::kLanes, lane = thread % Tiles::kLanes;
  const std::int64_t steps = tiles.steps();
  Tiles::clear(sums);
  if (steps > 0) tiles.load(at, 0, thread, shared);
  __pipeline_commit();
  for (std::int64_t step = 0; step < steps; ++step) {
    __pipeline_wait_prior(0);
    __syncthreads();  // the step is there, and everyone is done with the half that the next one takes
    if (step + 1 < steps) tiles.load(at, step + 1, thread, shared);
    __pipeline_commit();
    Tiles::multiply(step, warp, shared, sums);
  }
  __syncthreads();
#pragma unroll
  for (int fragment = 0; fragment < Tiles::kFragments; ++fragment) {
    Tiles::keep(fragment, warp, sums, shared);
    __syncwarp();
    tiles.finish(at, fragment, warp, lane, shared);
    __syncwarp();
    tiles.mirror(at, fragment, warp, lane, shared);
    __syncwarp();
  }
}
#else
/// One block: what stands between two barriers is done by one thread after another.
template <class Tiles>
void run_tile(const Tiles& tiles, std::int64_t tile, std::int64_t matrix) {
  const auto at = Tiles::place(tile, matrix);
  typename Tiles::Shared shared;
  std::vector<typename Tiles::Sums> sums(Tiles::kWarps);
  for (auto& of_warp : sums) Tiles::clear(of_warp);
  for (std::int64_t step = 0; step < tiles.steps(); ++step) {
    for (int thread = 0; thread < Tiles::kThreads; ++thread) tiles.load(at, step, thread, shared);
    for (int warp = 0; warp < Tiles::kWarps; ++warp)
      Tiles::multiply(step, warp, shared, sums[static_cast<std::size_t>(warp)]);
  }
  for (int warp = 0; warp < Tiles::kWarps; ++warp) {
    for (int fragment = 0; fragment < Tiles::kFragments; ++fragment) {
      Tiles::keep(fragment, warp, sums[static_cast<std::size_t>(warp)], shared);
      for (int lane = 0; lane < Tiles::kLanes; ++lane) tiles.finish(at, fragment, warp, lane, shared);
      for (int lane = 0; lane < Tiles::kLanes; ++lane) tiles.mirror(at, fragment, warp, lane, shared);
    }
  }
}
#endif

template <class T, bool tall>
void run_symmetric(const GpuQueue& queue, const SymmetricProduct<T>& own) {
  using Tiles = SymmetricTiles<T, tall>;
  const Tiles tiles(own);
  const std::int64_t of_matrix = Tiles::tiles(own.n);
#if defined(__CUDACC__)
  const dim3 grid(static_cast<unsigned>(of_matrix), static_cast<unsigned>(own.count));
  run_tiles<<<grid, Tiles::kThreads, 0, queue.stream>>>(tiles);
  require_launched();
#else
  enqueue(queue, [tiles, of_matrix, count = own.count] {
    for (std::int64_t matrix = 0; matrix < count; ++matrix) {
      for (std::int64_t tile = 0; tile < of_matrix; ++tile) run_tile(tiles, tile, matrix);
    }
  });
#endif
}

/// Asynchronous on the queue.
template <class T>
void symmetric_product(const GpuQueue& queue, const SymmetricProduct<T>& own) {
  if (own.n * own.count == 0) return;
  own.tall ? run_symmetric<T, true>(queue, own) : run_symmetric<T, false>(queue, own);
}

}  // namespace CANZONA_TARGET
}  // namespace gpu
}  // namespace canzona::optimized
