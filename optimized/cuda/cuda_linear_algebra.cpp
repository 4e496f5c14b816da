#include "optimized/cuda/cuda_linear_algebra.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "optimized/cuda/check.hpp"
#include "optimized/cuda/cuda_stream.hpp"
#include "optimized/device/functors.hpp"
#include "optimized/device/launch.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

int width(std::int64_t size) { return static_cast<int>(size); }

struct Turn {
  std::int64_t n;
  const float* from;
  float* to;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) { to[(i - row * n) * n + row] = from[i]; }
};

/// twice ← A; a matrix that is not finite becomes zero in both, lest a solver never ends.
struct TakeFinite {
  const double* spoilt;
  float* A;
  double* twice;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    if (*spoilt != 0) A[i] = 0;
    twice[i] = static_cast<double>(A[i]);
  }
};

/// Work memory of a factorization; sizes are cuSOLVER's.
struct Work {
  double* twice;   // n²: A in fp64
  double* values;  // n
  double* sums;    // of what is not finite: input, vectors, values
  float* turned;   // n²: A transposed
  float* tau;      // n
  int* info;
  std::int32_t* again;  // whether to solve in fp64
  std::byte* solver;

  static constexpr std::int64_t kAligned = 256;
  static std::int64_t padded(std::int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

  Work(std::byte* memory, std::int64_t n) {
    std::byte* next = memory;
    const auto take = [&next](std::int64_t bytes) {
      std::byte* own = next;
      next += padded(bytes);
      return own;
    };
    constexpr std::int64_t kDouble = sizeof(double), kFloat = sizeof(float);
    twice = reinterpret_cast<double*>(take(n * n * kDouble));
    values = reinterpret_cast<double*>(take(n * kDouble));
    sums = reinterpret_cast<double*>(take(3 * kDouble));
    turned = reinterpret_cast<float*>(take(n * n * kFloat));
    tau = reinterpret_cast<float*>(take(n * kFloat));
    info = reinterpret_cast<int*>(take(sizeof(int)));
    again = reinterpret_cast<std::int32_t*>(take(sizeof(std::int32_t)));
    solver = next;
  }
  std::int64_t bytes_before_solver(const std::byte* memory) const { return solver - memory; }
};

/// Whether a finite input has found its vectors, and if not, whether to try again.
struct Judge {
  const double* sums;
  const int* info;
  std::int32_t* found;
  std::int32_t* again;
  CANZONA_KERNEL void operator()(std::int64_t /*one*/) {
    *found = sums[0] == 0 && sums[1] == 0 && sums[2] == 0 && *info == 0 ? 1 : 0;
    *again = sums[0] == 0 && *found == 0 ? 1 : 0;
  }
};

int work_size(cusolverDnHandle_t solver, bool twice, int n) {
  int size = 0;
  constexpr auto kJob = CUSOLVER_EIG_MODE_VECTOR;
  constexpr auto kTriangle = CUBLAS_FILL_MODE_LOWER;
  check(twice ? cusolverDnDsyevd_bufferSize(solver, kJob, kTriangle, n, nullptr, n, nullptr, &size)
              : cusolverDnSsyevd_bufferSize(solver, kJob, kTriangle, n, nullptr, n, nullptr, &size));
  return size;
}

int orthogonal_work_size(cusolverDnHandle_t solver, int n) {
  int factor = 0, generate = 0;
  check(cusolverDnSgeqrf_bufferSize(solver, n, n, nullptr, n, &factor));
  check(cusolverDnSorgqr_bufferSize(solver, n, n, n, nullptr, n, nullptr, &generate));
  return std::max(factor, generate);
}

}  // namespace

// The base keeps a reference to what is made after it.
CudaLinearAlgebra::CudaLinearAlgebra(Device& device, bool allows_tf32, const SymmetricChoice& symmetric)
    : CudaProducts(blas_, symmetric),
      device_(device),
      blas_(device, allows_tf32),
      fp64_(blas_, symmetric),
      bf16_(blas_, symmetric),
      fp16_(blas_, symmetric) {
  check(cusolverDnCreate(&solver_));
}

SymmetricChoice CudaLinearAlgebra::choice_of(SymmetricWay way) {
  int device = 0, generation = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device));
  return {way, generation};
}

CudaLinearAlgebra::~CudaLinearAlgebra() { cusolverDnDestroy(solver_); }

std::int64_t CudaLinearAlgebra::factorization_bytes(std::int64_t n) const {
  if (n == 0) return 0;                     // of which cuSOLVER would refuse the leading dimension
  constexpr std::int64_t kLongest = 46340;  // n² ≤ 2³¹ − 1
  if (n > kLongest) {
    throw InputError("", "the side of a matrix to factorize", std::to_string(n),
                     "up to " + std::to_string(kLongest) + ", for cuSOLVER's 32-bit sizes");
  }
  const int side = width(n);
  const std::int64_t single =
      sizeof(float) * std::max(work_size(solver_, false, side), orthogonal_work_size(solver_, side));
  const std::int64_t twice = sizeof(double) * work_size(solver_, true, side);
  return Work(nullptr, n).bytes_before_solver(nullptr) + std::max(single, twice);
}

/// Symmetric: columns are rows. Eigenvectors come in columns of the column-major order, so they are turned.
void CudaLinearAlgebra::eigh(Stream& stream, MatrixOut A, DevicePointer<float> values,
                             DevicePointer<std::int32_t> found, DevicePointer<std::byte> memory) {
  check(cusolverDnSetStream(solver_, native(stream)));
  const std::int64_t n = A.rows;
  const int side = width(n);
  const Work work(memory.raw(), n);
  const DevicePointer<double> sums(work.sums);
  launch_sums(stream, 1, n * n, sums, NotFinite{A.data.raw()});
  launch(stream, n * n, TakeFinite{work.sums, A.data.raw(), work.twice});
  const auto judge = [&](Stream& own) {
    launch_sums(own, 1, n * n, sums + 1, NotFinite{A.data.raw()});
    launch_sums(own, 1, n, sums + 2, NotFinite{values.raw()});
    launch(own, 1, Judge{work.sums, work.info, found.raw(), work.again});
  };
  check(cusolverDnSsyevd(solver_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, side, A.data.raw(), side,
                         values.raw(), reinterpret_cast<float*>(work.solver), work_size(solver_, false, side),
                         work.info));
  judge(stream);
  stream.repeat_while(DevicePointer<const std::int32_t>(work.again), 1, [&](Stream& own) {
    check(cusolverDnDsyevd(solver_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, side, work.twice, side,
                           work.values, reinterpret_cast<double*>(work.solver), work_size(solver_, true, side),
                           work.info));
    launch(own, n * n, Convert<double, float>{work.twice, A.data.raw()});
    launch(own, n, Convert<double, float>{work.values, values.raw()});
    judge(own);
  });
  launch_rows(stream, n, n, Turn{n, A.data.raw(), work.turned});
  device_.copy(stream, work.turned, A.data.raw(), static_cast<std::size_t>(A.size()) * sizeof(float));
}

/// Turned into column-major order, factorized, turned back.
void CudaLinearAlgebra::qr(Stream& stream, MatrixOut A, DevicePointer<std::byte> memory) {
  check(cusolverDnSetStream(solver_, native(stream)));
  const std::int64_t n = A.rows;
  const int side = width(n);
  const Work work(memory.raw(), n);
  const int size = orthogonal_work_size(solver_, side);
  float* solver = reinterpret_cast<float*>(work.solver);
  launch_rows(stream, n, n, Turn{n, A.data.raw(), work.turned});
  check(cusolverDnSgeqrf(solver_, side, side, work.turned, side, work.tau, solver, size, work.info));
  check(cusolverDnSorgqr(solver_, side, side, side, work.turned, side, work.tau, solver, size, work.info));
  launch_rows(stream, n, n, Turn{n, work.turned, A.data.raw()});
}

}  // namespace canzona::optimized
