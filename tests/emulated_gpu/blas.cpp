// cuBLAS: products on the stream that the handle has at the time of the call.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>

#include "tests/emulated_gpu/internal.hpp"
#include "tests/emulated_gpu/memory.hpp"
#include "tests/emulated_gpu/products.hpp"
#include "tests/emulated_gpu/streams.hpp"

namespace emulated = canzona::emulated_gpu;

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

namespace canzona::emulated_gpu {

namespace {

/// A product of a batch: strides in elements.
struct Gemm {
  const char* caller;
  cublasOperation_t operation_a, operation_b;
  std::int64_t m, n, k;
  const void* a;
  std::int64_t leading_a, stride_a;
  const void* b;
  std::int64_t leading_b, stride_b;
  void* c;
  std::int64_t leading_c, stride_c;
  std::int64_t batch = 1;
};

bool is_operation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

/// Elements from the first to the last that a batch touches.
std::int64_t extent(std::int64_t rows, std::int64_t columns, std::int64_t leading, std::int64_t stride,
                    std::int64_t batch) {
  return rows == 0 || columns == 0 ? 0 : (batch - 1) * stride + (columns - 1) * leading + rows;
}

/// Real products may write anything to the workspace: two streams that share one must show as a race.
void use_workspace(void* workspace, std::size_t bytes) {
  if (bytes > 0) std::memset(workspace, 0xFF, std::min<std::size_t>(bytes, 256));
}

template <class Accumulator, class Input, class Output>
cublasStatus_t gemm(cublasHandle_t handle, const Gemm& call, const void* alpha, const void* beta) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!is_operation(call.operation_a) || !is_operation(call.operation_b)) return CUBLAS_STATUS_INVALID_VALUE;
  const ProductShape shape{call.operation_a != CUBLAS_OP_N, call.operation_b != CUBLAS_OP_N, call.m, call.n, call.k};
  const std::int64_t rows_a = shape.transpose_a ? call.k : call.m;
  const std::int64_t rows_b = shape.transpose_b ? call.n : call.k;
  if (std::min({call.m, call.n, call.k, call.batch, call.stride_a, call.stride_b, call.stride_c}) < 0 ||
      call.leading_a < std::max<std::int64_t>(1, rows_a) || call.leading_b < std::max<std::int64_t>(1, rows_b) ||
      call.leading_c < std::max<std::int64_t>(1, call.m) || alpha == nullptr || beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Stream* stream = launchable_stream(call.caller, handle->stream, Captured::kept);
  if (stream == nullptr) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (call.m == 0 || call.n == 0 || call.batch == 0) return CUBLAS_STATUS_SUCCESS;
  const auto factor = *static_cast<const Accumulator*>(alpha);
  const auto kept = *static_cast<const Accumulator*>(beta);
  const bool reads = factor != Accumulator{0};
  const auto bytes = [&](std::int64_t rows, std::int64_t columns, std::int64_t leading, std::int64_t stride) {
    return static_cast<std::size_t>(extent(rows, columns, leading, stride, call.batch)) * sizeof(Input);
  };
  const std::size_t bytes_a = bytes(rows_a, shape.transpose_a ? call.m : call.k, call.leading_a, call.stride_a);
  const std::size_t bytes_b = bytes(rows_b, shape.transpose_b ? call.k : call.n, call.leading_b, call.stride_b);
  const std::size_t bytes_c = bytes(call.m, call.n, call.leading_c, call.stride_c) / sizeof(Input) * sizeof(Output);
  if (!are_usable(call.caller, stream->device(),
                  {{"A", call.a, reads ? bytes_a : 0}, {"B", call.b, reads ? bytes_b : 0}, {"C", call.c, bytes_c}})) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  stream->push([=, workspace = handle->workspace, workspace_bytes = handle->workspace_bytes] {
    use_workspace(workspace, workspace_bytes);
    for (std::int64_t i = 0; i < call.batch; ++i) {
      multiply(
          shape, factor,
          ColumnMajor<const Input>{static_cast<const Input*>(call.a) + i * call.stride_a, call.leading_a},
          ColumnMajor<const Input>{static_cast<const Input*>(call.b) + i * call.stride_b, call.leading_b}, kept,
          ColumnMajor<Output>{static_cast<Output*>(call.c) + i * call.stride_c, call.leading_c},
          [](std::int64_t) { return std::int64_t{0}; }, [&](std::int64_t) { return call.m; });
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

bool is_single(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32: return true;
    default: return false;
  }
}

cublasStatus_t gemm_of_types(cublasHandle_t handle, const Gemm& call, const void* alpha, const void* beta,
                             cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
  if (a != b) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a == CUDA_R_64F && c == CUDA_R_64F && (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC)) {
    return gemm<double, double, double>(handle, call, alpha, beta);
  }
  if (!is_single(compute)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a == CUDA_R_32F && c == CUDA_R_32F) return gemm<float, float, float>(handle, call, alpha, beta);
  if (a == CUDA_R_16BF && c == CUDA_R_16BF) {
    return gemm<float, __nv_bfloat16, __nv_bfloat16>(handle, call, alpha, beta);
  }
  if (a == CUDA_R_16BF && c == CUDA_R_32F) return gemm<float, __nv_bfloat16, float>(handle, call, alpha, beta);
  if (a == CUDA_R_16F && c == CUDA_R_16F) return gemm<float, __half, __half>(handle, call, alpha, beta);
  if (a == CUDA_R_16F && c == CUDA_R_32F) return gemm<float, __half, float>(handle, call, alpha, beta);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

}  // namespace canzona::emulated_gpu

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = {.stream = stream};  // and the workspace is cuBLAS's own again
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!emulated::are_usable("cublasSetWorkspace", emulated::current_device(), {{"the workspace", workspace, bytes}})) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t) {
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
                           int n, int k, const float* alpha, const float* a, int leading_a, const float* b,
                           int leading_b, const float* beta, float* c, int leading_c) {
  return emulated::gemm<float, float, float>(
      handle, {"cublasSgemm", operation_a, operation_b, m, n, k, a, leading_a, 0, b, leading_b, 0, c, leading_c, 0},
      alpha, beta);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t operation_a,
                                         cublasOperation_t operation_b, int m, int n, int k, const float* alpha,
                                         const float* a, int leading_a, long long stride_a, const float* b,
                                         int leading_b, long long stride_b, const float* beta, float* c, int leading_c,
                                         long long stride_c, int batch) {
  return emulated::gemm<float, float, float>(
      handle,
      {"cublasSgemmStridedBatched", operation_a, operation_b, m, n, k, a, leading_a, stride_a, b, leading_b, stride_b,
       c, leading_c, stride_c, batch},
      alpha, beta);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType type_a, int leading_a,
                            const void* b, cudaDataType type_b, int leading_b, const void* beta, void* c,
                            cudaDataType type_c, int leading_c, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return emulated::gemm_of_types(
      handle, {"cublasGemmEx", operation_a, operation_b, m, n, k, a, leading_a, 0, b, leading_b, 0, c, leading_c, 0},
      alpha, beta, type_a, type_b, type_c, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t operation_a,
                                          cublasOperation_t operation_b, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType type_a, int leading_a, long long stride_a,
                                          const void* b, cudaDataType type_b, int leading_b, long long stride_b,
                                          const void* beta, void* c, cudaDataType type_c, int leading_c,
                                          long long stride_c, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  return emulated::gemm_of_types(handle,
                                 {"cublasGemmStridedBatchedEx", operation_a, operation_b, m, n, k, a, leading_a,
                                  stride_a, b, leading_b, stride_b, c, leading_c, stride_c, batch},
                                 alpha, beta, type_a, type_b, type_c, compute);
}

cublasStatus_t cublasSsyrk(cublasHandle_t handle, cublasFillMode_t triangle, cublasOperation_t operation, int n, int k,
                           const float* alpha, const float* a, int leading_a, const float* beta, float* c,
                           int leading_c) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool transposed = operation != CUBLAS_OP_N;
  const int rows_a = transposed ? k : n;
  if (!emulated::is_operation(operation) ||
      (triangle != CUBLAS_FILL_MODE_LOWER && triangle != CUBLAS_FILL_MODE_UPPER) || n < 0 || k < 0 ||
      leading_a < std::max(1, rows_a) || leading_c < std::max(1, n) || alpha == nullptr || beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  emulated::Stream* stream = emulated::launchable_stream("cublasSsyrk", handle->stream, emulated::Captured::kept);
  if (stream == nullptr) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (n == 0) return CUBLAS_STATUS_SUCCESS;
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
  if (!emulated::are_usable(
          "cublasSsyrk", stream->device(),
          {{"A", a, *alpha == 0 ? 0 : bytes(emulated::extent(rows_a, transposed ? n : k, leading_a, 0, 1))},
           {"C", c, bytes(emulated::extent(n, n, leading_c, 0, 1))}})) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  stream->push(
      [=, alpha = *alpha, beta = *beta, workspace = handle->workspace, workspace_bytes = handle->workspace_bytes] {
        emulated::use_workspace(workspace, workspace_bytes);
        const bool lower = triangle == CUBLAS_FILL_MODE_LOWER;
        const emulated::ColumnMajor<const float> factor{a, leading_a};
        emulated::multiply(
            {transposed, !transposed, n, n, k}, alpha, factor, factor, beta, emulated::ColumnMajor<float>{c, leading_c},
            [&](std::int64_t column) { return lower ? column : 0; },
            [&](std::int64_t column) { return lower ? n : column + 1; });
      });
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "unknown status";
  }
}
