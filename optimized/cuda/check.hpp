// Status codes of CUDA's libraries as exceptions that name the code and the line of the call.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>
#include <nccl.h>

#include <source_location>

namespace canzona::optimized {

void check(cudaError_t status, const std::source_location& where = std::source_location::current());
void check(cublasStatus_t status, const std::source_location& where = std::source_location::current());
void check(cusolverStatus_t status, const std::source_location& where = std::source_location::current());
void check(ncclResult_t status, const std::source_location& where = std::source_location::current());

}  // namespace canzona::optimized
