// Functors on a GPU: how the loops of launch.hpp become kernels, or functions on the streams of the emulated one. In
// C++ for the host alone a GPU's stream is refused.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "optimized/device/operands.hpp"
#include "reference/core/error.hpp"
#include "reference/core/exact_sum.hpp"

#if defined(__CUDACC__) || defined(CANZONA_EMULATED_GPU)
#include <cuda_runtime_api.h>
#endif
#if defined(CANZONA_EMULATED_GPU)
#include <functional>

namespace canzona::emulated_gpu {
/// What <<<>>> is to nvcc. Defined in tests/emulated_gpu.
cudaError_t launch_kernel(cudaStream_t stream, std::function<void()> kernel);
}  // namespace canzona::emulated_gpu
#endif

struct CUstream_st;

namespace canzona::optimized {

/// Where a GPU's stream takes kernels. Reductions of one stream leave partial results in `partials` between two
/// kernels.
struct GpuQueue {
  static constexpr std::int64_t kPartials = std::int64_t{1} << 16;
  CUstream_st* stream;
  double* partials;
};

/// Of doubles: how two become one.
struct Sum {
  static constexpr double kNothing = 0;
  CANZONA_KERNEL static double of(double a, double b) { return a + b; }
};
/// NaN where one of them is.
struct Maximum {
  static constexpr double kNothing = -std::numeric_limits<double>::infinity();
  CANZONA_KERNEL static double of(double a, double b) { return a >= b || a != a ? a : b; }
};

/// What a reduction's functor makes of an element i of a row; it may ask for the row besides.
template <class Functor>
CANZONA_KERNEL double element_of(const Functor& functor, std::int64_t row, std::int64_t i) {
  if constexpr (std::is_invocable_v<const Functor&, std::int64_t, std::int64_t>) {
    return functor(row, i);
  } else {
    return functor(i);
  }
}

namespace gpu {

/// Elements of one row that one block of a reduction takes, at least.
constexpr std::int64_t kChunk = 32768;

/// Into how many chunks the rows of a reduction are cut: a function of the shape alone, as is the order of its sums.
inline std::int64_t chunks_of(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kLargestGrid = 65535;  // CUDA's, in y
  const std::int64_t most =
      std::clamp<std::int64_t>(GpuQueue::kPartials / std::max<std::int64_t>(rows, 1), 1, kLargestGrid);
  return std::clamp<std::int64_t>(cols / kChunk, 1, most);
}

#if defined(__CUDACC__)
inline namespace CANZONA_TARGET {

constexpr int kThreads = 256;  // of a block

inline void require_launched() {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw Error(std::string("a kernel cannot be launched: ") + cudaGetErrorString(error));
}

/// Blocks for so many threads. More than this many keep no GPU busier.
inline unsigned blocks_for(std::int64_t threads, std::int64_t most = 16384) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, most));
}

template <class Functor>
__global__ void visit_elements(std::int64_t count, Functor given) {
  Functor functor = loaded(given);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
    visit(functor, i);
}

/// In packs, and one by one what is left.
template <class Functor>
__global__ void visit_packs(std::int64_t count, Functor given) {
  const Functor functor = loaded(given);
  constexpr std::int64_t kWidth = kPackWidth<Functor>;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t pack = first; pack < count / kWidth; pack += step) visit_pack(functor, pack * kWidth);
  for (std::int64_t i = count / kWidth * kWidth + first; i < count; i += step) visit(functor, i);
}

template <class Functor>
__global__ void visit_rows(std::int64_t rows, std::int64_t cols, Functor given) {
  Functor functor = loaded(given);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    for (std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; col < cols; col += step)
      functor(row, row * cols + col);
  }
}

/// out[row·chunks + chunk] = what the chunk's elements come to, by a tree of fixed shape.
template <class Combine, class Functor>
__global__ void reduce_chunks(std::int64_t cols, Functor functor, double* out) {
  __shared__ double lanes[kThreads];
  const std::int64_t row = blockIdx.x, chunk = blockIdx.y, chunks = gridDim.y;
  const std::int64_t begin = cols * chunk / chunks, end = cols * (chunk + 1) / chunks;
  double own = Combine::kNothing;
  for (std::int64_t col = begin + threadIdx.x; col < end; col += kThreads)
    own = Combine::of(own, element_of(functor, row, row * cols + col));
  lanes[threadIdx.x] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half)
      lanes[threadIdx.x] = Combine::of(lanes[threadIdx.x], lanes[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) out[row * chunks + chunk] = lanes[0];
}

template <class Combine>
struct CombineChunks {
  std::int64_t chunks;
  const double* partials;
  double* out;
  CANZONA_KERNEL void operator()(std::int64_t row) {
    double all = Combine::kNothing;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) all = Combine::of(all, partials[row * chunks + chunk]);
    out[row] = all;
  }
};

/// Squares of one exponent meet in a bin of the block before they go to the digits.
template <class Integer>
__global__ void visit_squares(const float* values, std::int64_t count, Integer* digits) {
  __shared__ unsigned long long bins[ExactSum::kExponents];
  for (int bin = threadIdx.x; bin < ExactSum::kExponents; bin += kThreads) bins[bin] = 0;
  __syncthreads();
  constexpr std::int64_t kBlock = ExactSum::kMostSquares;
  for (std::int64_t begin = blockIdx.x * kBlock; begin < count; begin += gridDim.x * kBlock) {
    const std::int64_t end = begin + kBlock < count ? begin + kBlock : count;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      const ExactSum::Square square = ExactSum::square(values[i]);
      atomicAdd(&bins[square.exponent], static_cast<unsigned long long>(square.value));
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < ExactSum::kExponents; bin += kThreads) {
      ExactSum::spread(bins[bin], bin, [&](std::int64_t digit, std::int64_t part) {
        atomicAdd(reinterpret_cast<unsigned long long*>(digits + digit), static_cast<unsigned long long>(part));
      });
      bins[bin] = 0;
    }
    __syncthreads();
  }
}

template <class Functor>
void for_each(const GpuQueue& queue, std::int64_t count, const Functor& functor) {
  if (count == 0) return;
  if constexpr (HasOperands<Functor>) {
    if (is_aligned(functor)) {
      const std::int64_t packs = (count + kPackWidth<Functor> - 1) / kPackWidth<Functor>;
      visit_packs<<<blocks_for(packs), kThreads, 0, queue.stream>>>(count, functor);
      return require_launched();
    }
  }
  visit_elements<<<blocks_for(count), kThreads, 0, queue.stream>>>(count, functor);
  require_launched();
}

template <class Functor>
void for_each_row(const GpuQueue& queue, std::int64_t rows, std::int64_t cols, const Functor& functor) {
  if (rows * cols == 0) return;
  const dim3 grid(blocks_for(cols, 1024), static_cast<unsigned>(std::min<std::int64_t>(rows, 16384)));
  visit_rows<<<grid, kThreads, 0, queue.stream>>>(rows, cols, functor);
  require_launched();
}

template <class Combine, class Functor>
void reduce_rows(const GpuQueue& queue, std::int64_t rows, std::int64_t cols, double* out, const Functor& functor) {
  if (rows == 0) return;
  const std::int64_t chunks = chunks_of(rows, cols);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(chunks));
  reduce_chunks<Combine><<<grid, kThreads, 0, queue.stream>>>(cols, functor, chunks == 1 ? out : queue.partials);
  require_launched();
  if (chunks > 1) for_each(queue, rows, CombineChunks<Combine>{chunks, queue.partials, out});
}

inline void add_squares(const GpuQueue& queue, const float* values, std::int64_t count, std::int64_t* digits) {
  if (count == 0) return;
  const std::int64_t blocks = (count + ExactSum::kMostSquares - 1) / ExactSum::kMostSquares;
  visit_squares<<<static_cast<unsigned>(std::min<std::int64_t>(blocks, 4096)), kThreads, 0, queue.stream>>>(
      values, count, digits);
  require_launched();
}

}  // namespace CANZONA_TARGET
#elif defined(CANZONA_EMULATED_GPU)
inline namespace CANZONA_TARGET {

inline void enqueue(const GpuQueue& queue, std::function<void()> kernel) {
  if (emulated_gpu::launch_kernel(queue.stream, std::move(kernel)) != cudaSuccess)
    throw Error("a kernel cannot be launched");
}

template <class Functor>
void for_each(const GpuQueue& queue, std::int64_t count, const Functor& functor) {
  enqueue(queue, [count, functor] {
    Functor own = loaded(functor);
    std::int64_t begin = 0;
    if constexpr (HasOperands<Functor>) {
      constexpr std::int64_t kWidth = kPackWidth<Functor>;
      for (; is_aligned(own) && begin + kWidth <= count; begin += kWidth) visit_pack(own, begin);
    }
    for (std::int64_t i = begin; i < count; ++i) visit(own, i);
  });
}

template <class Functor>
void for_each_row(const GpuQueue& queue, std::int64_t rows, std::int64_t cols, const Functor& functor) {
  enqueue(queue, [rows, cols, functor] {
    Functor own = loaded(functor);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) own(row, row * cols + col);
    }
  });
}

/// In the two steps of a GPU, so that partial results lie where a GPU's would.
template <class Combine, class Functor>
void reduce_rows(const GpuQueue& queue, std::int64_t rows, std::int64_t cols, double* out, const Functor& functor) {
  const std::int64_t chunks = chunks_of(rows, cols);
  double* partials = chunks == 1 ? out : queue.partials;
  enqueue(queue, [rows, cols, chunks, partials, functor] {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        double own = Combine::kNothing;
        for (std::int64_t col = cols * chunk / chunks; col < cols * (chunk + 1) / chunks; ++col)
          own = Combine::of(own, element_of(functor, row, row * cols + col));
        partials[row * chunks + chunk] = own;
      }
    }
  });
  if (chunks == 1) return;
  enqueue(queue, [rows, chunks, partials, out] {
    for (std::int64_t row = 0; row < rows; ++row) {
      double all = Combine::kNothing;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) all = Combine::of(all, partials[row * chunks + chunk]);
      out[row] = all;
    }
  });
}

inline void add_squares(const GpuQueue& queue, const float* values, std::int64_t count, std::int64_t* digits) {
  enqueue(queue, [values, count, digits] { ExactSum::add_squares(values, count, digits); });
}

}  // namespace CANZONA_TARGET
#else
inline namespace CANZONA_TARGET {

[[noreturn]] inline void refuse() {
  throw Error("this source was not compiled for a GPU: its functors run on the host");
}

template <class Functor>
void for_each(const GpuQueue&, std::int64_t, const Functor&) {
  refuse();
}
template <class Functor>
void for_each_row(const GpuQueue&, std::int64_t, std::int64_t, const Functor&) {
  refuse();
}
template <class Combine, class Functor>
void reduce_rows(const GpuQueue&, std::int64_t, std::int64_t, double*, const Functor&) {
  refuse();
}
inline void add_squares(const GpuQueue&, const float*, std::int64_t, std::int64_t*) { refuse(); }

}  // namespace CANZONA_TARGET
#endif

}  // namespace gpu
}  // namespace canzona::optimized
