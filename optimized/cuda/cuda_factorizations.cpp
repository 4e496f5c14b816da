#include "optimized/cuda/cuda_factorizations.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "optimized/cuda/check.hpp"
#include "optimized/cuda/cuda_stream.hpp"
#include "optimized/device/functors.hpp"
#include "optimized/device/launch.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

int width(std::int64_t size) { return static_cast<int>(size); }

template <class T>
struct Turn {
  std::int64_t n;
  const T* from;
  T* to;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) { to[(i - row * n) * n + row] = from[i]; }
};

/// twice ← A, where there is that; a matrix that is not finite becomes zero in both, lest a solver never ends.
template <class T>
struct TakeFinite {
  const double* spoilt;
  T* A;
  double* twice;
  CANZONA_KERNEL void operator()(std::int64_t i) {
    if (*spoilt != 0) A[i] = 0;
    if (twice != nullptr) twice[i] = static_cast<double>(A[i]);
  }
};

/// Work memory of a factorization; sizes are cuSOLVER's. In fp64 nothing is solved again.
template <class T>
struct Work {
  double* twice = nullptr;   // n²: A in fp64
  double* values = nullptr;  // n
  double* sums;              // of what is not finite: input, vectors, values
  T* turned;                 // n²: A transposed
  T* tau;                    // n
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
    constexpr std::int64_t kDouble = sizeof(double), kOwn = sizeof(T);
    if constexpr (!std::is_same_v<T, double>) {
      twice = reinterpret_cast<double*>(take(n * n * kDouble));
      values = reinterpret_cast<double*>(take(n * kDouble));
    }
    sums = reinterpret_cast<double*>(take(3 * kDouble));
    turned = reinterpret_cast<T*>(take(n * n * kOwn));
    tau = reinterpret_cast<T*>(take(n * kOwn));
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

constexpr auto kVectors = CUSOLVER_EIG_MODE_VECTOR;
constexpr auto kLower = CUBLAS_FILL_MODE_LOWER;

// cuSOLVER by type of element, n × n. Sizes of work memory are in elements.

void syevd(cusolverDnHandle_t solver, int n, float* A, float* values, float* work, int size, int* info) {
  check(cusolverDnSsyevd(solver, kVectors, kLower, n, A, n, values, work, size, info));
}
void syevd(cusolverDnHandle_t solver, int n, double* A, double* values, double* work, int size, int* info) {
  check(cusolverDnDsyevd(solver, kVectors, kLower, n, A, n, values, work, size, info));
}

template <class T>
int symmetric_size(cusolverDnHandle_t solver, int n) {
  int size = 0;
  if constexpr (std::is_same_v<T, double>) {
    check(cusolverDnDsyevd_bufferSize(solver, kVectors, kLower, n, nullptr, n, nullptr, &size));
  } else {
    check(cusolverDnSsyevd_bufferSize(solver, kVectors, kLower, n, nullptr, n, nullptr, &size));
  }
  return size;
}

/// A ← the orthogonal factor of A, column-major.
void orthogonalize(cusolverDnHandle_t solver, int n, float* A, float* tau, float* work, int size, int* info) {
  check(cusolverDnSgeqrf(solver, n, n, A, n, tau, work, size, info));
  check(cusolverDnSorgqr(solver, n, n, n, A, n, tau, work, size, info));
}
void orthogonalize(cusolverDnHandle_t solver, int n, double* A, double* tau, double* work, int size, int* info) {
  check(cusolverDnDgeqrf(solver, n, n, A, n, tau, work, size, info));
  check(cusolverDnDorgqr(solver, n, n, n, A, n, tau, work, size, info));
}

template <class T>
int orthogonal_size(cusolverDnHandle_t solver, int n) {
  int factor = 0, generate = 0;
  if constexpr (std::is_same_v<T, double>) {
    check(cusolverDnDgeqrf_bufferSize(solver, n, n, nullptr, n, &factor));
    check(cusolverDnDorgqr_bufferSize(solver, n, n, n, nullptr, n, nullptr, &generate));
  } else {
    check(cusolverDnSgeqrf_bufferSize(solver, n, n, nullptr, n, &factor));
    check(cusolverDnSorgqr_bufferSize(solver, n, n, n, nullptr, n, nullptr, &generate));
  }
  return std::max(factor, generate);
}

}  // namespace

CusolverHandle::CusolverHandle() { check(cusolverDnCreate(&own_)); }
CusolverHandle::~CusolverHandle() { cusolverDnDestroy(own_); }

cusolverDnHandle_t CusolverHandle::on(Stream& stream) {
  check(cusolverDnSetStream(own_, native(stream)));
  return own_;
}

template <class T>
std::int64_t CudaFactorizations<T>::bytes(std::int64_t n) const {
  if (n == 0) return 0;                     // of which cuSOLVER would refuse the leading dimension
  constexpr std::int64_t kLongest = 46340;  // n² ≤ 2³¹ − 1
  if (n > kLongest) {
    throw InputError("", "the side of a matrix to factorize", std::to_string(n),
                     "up to " + std::to_string(kLongest) + ", for cuSOLVER's 32-bit sizes");
  }
  const int side = width(n);
  const std::int64_t own =
      sizeof(T) * std::max(symmetric_size<T>(solver_.get(), side), orthogonal_size<T>(solver_.get(), side));
  const std::int64_t twice = sizeof(double) * symmetric_size<double>(solver_.get(), side);
  return Work<T>(nullptr, n).bytes_before_solver(nullptr) + std::max(own, twice);
}

/// Symmetric: columns are rows. Eigenvectors come in columns of the column-major order, so they are turned.
template <class T>
void CudaFactorizations<T>::eigh(Stream& stream, MatrixView<T> A, DevicePointer<T> values,
                                 DevicePointer<std::int32_t> found, DevicePointer<std::byte> memory) {
  const cusolverDnHandle_t solver = solver_.on(stream);
  const std::int64_t n = A.rows;
  const int side = width(n);
  const Work<T> work(memory.raw(), n);
  const DevicePointer<double> sums(work.sums);
  launch_sums(stream, 1, n * n, sums, NotFinite<T>{A.data.raw()});
  launch(stream, n * n, TakeFinite<T>{work.sums, A.data.raw(), work.twice});
  const auto judge = [&](Stream& own) {
    launch_sums(own, 1, n * n, sums + 1, NotFinite<T>{A.data.raw()});
    launch_sums(own, 1, n, sums + 2, NotFinite<T>{values.raw()});
    launch(own, 1, Judge{work.sums, work.info, found.raw(), work.again});
  };
  syevd(solver, side, A.data.raw(), values.raw(), reinterpret_cast<T*>(work.solver), symmetric_size<T>(solver, side),
        work.info);
  judge(stream);
  if constexpr (!std::is_same_v<T, double>) {
    stream.repeat_while(DevicePointer<const std::int32_t>(work.again), 1, [&](Stream& own) {
      syevd(solver, side, work.twice, work.values, reinterpret_cast<double*>(work.solver),
            symmetric_size<double>(solver, side), work.info);
      launch(own, n * n, Convert<double, T>{work.twice, A.data.raw()});
      launch(own, n, Convert<double, T>{work.values, values.raw()});
      judge(own);
    });
  }
  launch_rows(stream, n, n, Turn<T>{n, A.data.raw(), work.turned});
  device_.copy(stream, work.turned, A.data.raw(), static_cast<std::size_t>(A.size()) * sizeof(T));
}

/// Turned into column-major order, factorized, turned back.
template <class T>
void CudaFactorizations<T>::qr(Stream& stream, MatrixView<T> A, DevicePointer<std::byte> memory) {
  const cusolverDnHandle_t solver = solver_.on(stream);
  const std::int64_t n = A.rows;
  const int side = width(n);
  const Work<T> work(memory.raw(), n);
  launch_rows(stream, n, n, Turn<T>{n, A.data.raw(), work.turned});
  orthogonalize(solver, side, work.turned, work.tau, reinterpret_cast<T*>(work.solver),
                orthogonal_size<T>(solver, side), work.info);
  launch_rows(stream, n, n, Turn<T>{n, work.turned, A.data.raw()});
}

template class CudaFactorizations<double>;
template class CudaFactorizations<float>;

}  // namespace canzona::optimized
