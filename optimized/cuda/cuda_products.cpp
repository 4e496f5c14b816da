#include "optimized/cuda/cuda_products.hpp"

#include <cstddef>

#include "optimized/cuda/check.hpp"
#include "optimized/cuda/cuda_stream.hpp"
#include "optimized/cuda/symmetric_tiles.hpp"
#include "optimized/device/functors.hpp"
#include "optimized/device/launch.hpp"

namespace canzona::optimized {
namespace {

/// What cuBLAS recommends for Hopper; more than it needs elsewhere. The emulated one needs next to nothing, and many
/// ranks in one process under a sanitizer would spend their time on clearing it.
#if defined(CANZONA_EMULATED_GPU)
constexpr std::size_t kWorkspace = 4096;
#else
constexpr std::size_t kWorkspace = std::size_t{32} << 20;
#endif

cublasOperation_t operation(Transpose transpose) { return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N; }

int width(std::int64_t size) { return static_cast<int>(size); }

template <class T>
constexpr cudaDataType kType = std::is_same_v<T, double>  ? CUDA_R_64F
                               : std::is_same_v<T, float> ? CUDA_R_32F
                               : std::is_same_v<T, Bf16>  ? CUDA_R_16BF
                                                          : CUDA_R_16F;
template <class T>
constexpr cublasComputeType_t kSums = std::is_same_v<T, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;

/// The lower triangle of each matrix of a stack becomes the mirror image of the upper one.
template <class T>
struct MirrorUpper {
  std::int64_t n;
  T* matrices;
  CANZONA_KERNEL void operator()(std::int64_t row, std::int64_t i) {
    const std::int64_t matrix = row / n, own_row = row % n, col = i - row * n;
    if (col < own_row) matrices[i] = matrices[(matrix * n + col) * n + own_row];
  }
};

}  // namespace

CublasHandle::CublasHandle(Device& device, bool allows_tf32) : workspace_(device.allocate(kWorkspace)) {
  check(cublasCreate(&own_));
  if (allows_tf32) check(cublasSetMathMode(own_, CUBLAS_TF32_TENSOR_OP_MATH));
}

CublasHandle::~CublasHandle() { cublasDestroy(own_); }

cublasHandle_t CublasHandle::on(Stream& stream) {
  check(cublasSetStream(own_, native(stream)));
  check(cublasSetWorkspace(own_, workspace_.as<std::byte>().raw(), kWorkspace));
  return own_;
}

template <class T, class Base>
bool CudaProducts<T, Base>::by_tiles(Stream& stream, Scalar alpha, In L, In R, Transpose transposed, Scalar beta, In D,
                                     Out C, std::int64_t count) {
  if constexpr (sizeof(T) == 2) {
    constexpr std::int64_t kMostMatrices = 65535;  // CUDA's grid, in y
    const bool tall = transposed == Transpose::yes;
    const std::int64_t tiles = count * gpu::SymmetricTiles<T, false>::tiles(C.rows);
    if (count > kMostMatrices || !symmetric_.takes_tiles(C.rows, tiles)) return false;
    gpu::symmetric_product<T>(*stream.gpu(), {C.rows, tall ? L.rows : L.cols, count, tall, alpha, beta, L.data.raw(),
                                              R.data.raw(), D.data.raw(), C.data.raw()});
    return true;
  }
  return false;
}

template <class T, class Base>
void CudaProducts<T, Base>::mirror(Stream& stream, Out C, std::int64_t count) {
  launch_rows(stream, count * C.rows, C.cols, MirrorUpper<T>{C.rows, C.data.raw()});
}

/// Row-major C = A·B is column-major Cᵀ = Bᵀ·Aᵀ.
template <class T, class Base>
void CudaProducts<T, Base>::products(Stream& stream, Scalar alpha, In A, Transpose a, In B, Transpose b, Scalar beta,
                                     Out C, std::int64_t count) {
  const int k = width(a == Transpose::yes ? A.rows : A.cols);
  check(cublasGemmStridedBatchedEx(blas_.on(stream), operation(b), operation(a), width(C.cols), width(C.rows), k,
                                   &alpha, B.data.raw(), kType<T>, width(B.cols), B.size(), A.data.raw(), kType<T>,
                                   width(A.cols), A.size(), &beta, C.data.raw(), kType<T>, width(C.cols), C.size(),
                                   width(count), kSums<T>, CUBLAS_GEMM_DEFAULT));
}

/// One of fp32 by cuBLAS's rank-k update, which writes half; others by products. The upper triangle in rows is the
/// lower one in columns.
template <class T, class Base>
void CudaProducts<T, Base>::symmetric_products(Stream& stream, Scalar alpha, In A, Transpose a, Scalar beta, Out C,
                                               std::int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    if (count == 1) {
      const int k = width(a == Transpose::yes ? A.rows : A.cols);
      check(cublasSsyrk(blas_.on(stream), CUBLAS_FILL_MODE_LOWER, a == Transpose::yes ? CUBLAS_OP_N : CUBLAS_OP_T,
                        width(C.rows), k, &alpha, A.data.raw(), width(A.cols), &beta, C.data.raw(), width(C.cols)));
      return mirror(stream, C, 1);
    }
  }
  if (by_tiles(stream, alpha, A, A, a, beta, optimized::in(C), C, count)) return;
  products(stream, alpha, A, a, A, a == Transpose::yes ? Transpose::no : Transpose::yes, beta, C, count);
  mirror(stream, C, count);
}

/// B is its own transpose.
template <class T, class Base>
void CudaProducts<T, Base>::commuting_products(Stream& stream, In A, In B, Scalar beta, Out C, std::int64_t count) {
  if (by_tiles(stream, 1, A, B, Transpose::no, beta, optimized::in(C), C, count)) return;
  products(stream, 1, A, Transpose::no, B, Transpose::no, beta, C, count);
  mirror(stream, C, count);
}

template <class T, class Base>
void CudaProducts<T, Base>::quadratics(Stream& stream, Scalar b, Scalar c, In A, Out P, std::int64_t count) {
  if (by_tiles(stream, c, A, A, Transpose::no, b, A, P, count)) return;
  launch(stream, count * A.size(), Copy<T>{A.data.raw(), P.data.raw()});
  products(stream, c, A, Transpose::no, A, Transpose::no, b, P, count);
  mirror(stream, P, count);
}

template class CudaProducts<double>;
template class CudaProducts<float, LinearAlgebra>;
template class CudaProducts<Bf16>;
template class CudaProducts<Fp16>;

}  // namespace canzona::optimized
