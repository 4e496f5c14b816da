#include "optimized/cuda/check.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

[[noreturn]] void fail(std::string_view library, std::string_view status, const std::source_location& where) {
  const std::string_view file = where.file_name();
  const std::size_t folder = file.find_last_of('/');
  throw Error(fmt::format("{}: {} ({}:{})", library, status,
                          folder == std::string_view::npos ? file : file.substr(folder + 1), where.line()));
}

}  // namespace

void check(cudaError_t status, const std::source_location& where) {
  if (status != cudaSuccess)
    fail("CUDA", fmt::format("{}, {}", cudaGetErrorName(status), cudaGetErrorString(status)), where);
}

void check(cublasStatus_t status, const std::source_location& where) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("cuBLAS", cublasGetStatusName(status), where);
}

void check(cusolverStatus_t status, const std::source_location& where) {
  if (status != CUSOLVER_STATUS_SUCCESS) fail("cuSOLVER", fmt::format("status {}", static_cast<int>(status)), where);
}

void check(ncclResult_t status, const std::source_location& where) {
  if (status != ncclSuccess && status != ncclInProgress) fail("NCCL", ncclGetErrorString(status), where);
}

}  // namespace canzona::optimized
