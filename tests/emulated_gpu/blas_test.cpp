// cuBLAS's products against plain sums of small whole numbers, which are exact in every type.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <cmath>

#include "tests/emulated_gpu/test_support.hpp"

namespace canzona::emulated_gpu {
namespace {

class Blas : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    stream_ = std::make_unique<TestStream>();
    EXPECT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetStream(handle_, *stream_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    cublasDestroy(handle_);
    stream_.reset();
    EmulatedGpu::TearDown();
  }

  std::unique_ptr<TestStream> stream_;
  cublasHandle_t handle_ = nullptr;
};

/// A number from -3 to 3 that depends on the place.
float entry(std::int64_t index) { return static_cast<float>(index * index % 7 - 3); }

template <class Element>
std::vector<Element> entries(std::int64_t count) {
  std::vector<Element> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<Element>(entry(i)));
  return values;
}

struct Sizes {
  bool transpose_a, transpose_b;
  int m = 5, n = 4, k = 3;
  int leading_a() const { return (transpose_a ? k : m) + 2; }
  int leading_b() const { return (transpose_b ? n : k) + 1; }
  int leading_c() const { return m + 3; }
  int columns_a() const { return transpose_a ? m : k; }
  int columns_b() const { return transpose_b ? k : n; }
};

/// The sum over p of op(A)(row, p) op(B)(p, column), where A and B are `entries` from these places on.
float product(const Sizes& sizes, int row, int column, std::int64_t begin_a = 0, std::int64_t begin_b = 0) {
  float sum = 0;
  for (int p = 0; p < sizes.k; ++p) {
    const int a = sizes.transpose_a ? row * sizes.leading_a() + p : p * sizes.leading_a() + row;
    const int b = sizes.transpose_b ? p * sizes.leading_b() + column : column * sizes.leading_b() + p;
    sum += entry(begin_a + a) * entry(begin_b + b);
  }
  return sum;
}

constexpr std::array kAllSizes{Sizes{false, false}, Sizes{true, false}, Sizes{false, true}, Sizes{true, true}};

cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

TEST_F(Blas, SgemmTakesEveryTranspositionAndLeadingDimension) {
  for (const Sizes& s : kAllSizes) {
    const auto* a = upload(entries<float>(s.leading_a() * s.columns_a()), *stream_);
    const auto* b = upload(entries<float>(s.leading_b() * s.columns_b()), *stream_);
    auto* c = upload(std::vector<float>(static_cast<std::size_t>(s.leading_c() * s.n), 10), *stream_);
    const float alpha = 2, beta = 3;
    ASSERT_EQ(cublasSgemm(handle_, operation(s.transpose_a), operation(s.transpose_b), s.m, s.n, s.k, &alpha, a,
                          s.leading_a(), b, s.leading_b(), &beta, c, s.leading_c()),
              CUBLAS_STATUS_SUCCESS);
    const auto result = fetch(c, static_cast<std::size_t>(s.leading_c() * s.n), *stream_);
    for (int column = 0; column < s.n; ++column) {
      for (int row = 0; row < s.leading_c(); ++row) {
        const float expected = row < s.m ? 2 * product(s, row, column) + 30 : 10;
        EXPECT_EQ(result[static_cast<std::size_t>(column * s.leading_c() + row)], expected);
      }
    }
  }
}

TEST_F(Blas, BetaOfZeroDoesNotReadC) {
  const Sizes s{false, false};
  const auto* a = upload(entries<float>(s.leading_a() * s.k), *stream_);
  const auto* b = upload(entries<float>(s.leading_b() * s.n), *stream_);
  auto* c = device_array<float>(static_cast<std::size_t>(s.leading_c() * s.n));
  const float alpha = 1, beta = 0;
  cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, s.m, s.n, s.k, &alpha, a, s.leading_a(), b, s.leading_b(), &beta, c,
              s.leading_c());
  const auto result = fetch(c, static_cast<std::size_t>(s.leading_c() * s.n), *stream_);
  EXPECT_EQ(result[0], product(s, 0, 0));
  EXPECT_EQ(result[static_cast<std::size_t>(3 * s.leading_c() + 4)], product(s, 4, 3));
  EXPECT_TRUE(std::isnan(result[static_cast<std::size_t>(s.m)]));
}

TEST_F(Blas, StridedBatchesAreProductsOfTheirOwn) {
  const Sizes s{true, false};
  constexpr int kBatch = 3, kStrideA = 30, kStrideB = 0, kStrideC = 40;
  const auto* a = upload(entries<float>(kBatch * kStrideA), *stream_);
  const auto* b = upload(entries<float>(s.leading_b() * s.n), *stream_);
  auto* c = device_array<float>(kBatch * kStrideC);
  const float alpha = 1, beta = 0;
  ASSERT_EQ(cublasSgemmStridedBatched(handle_, CUBLAS_OP_T, CUBLAS_OP_N, s.m, s.n, s.k, &alpha, a, s.leading_a(),
                                      kStrideA, b, s.leading_b(), kStrideB, &beta, c, s.leading_c(), kStrideC, kBatch),
            CUBLAS_STATUS_SUCCESS);
  const auto result = fetch(c, kBatch * kStrideC, *stream_);
  for (int i = 0; i < kBatch; ++i) {
    EXPECT_EQ(result[static_cast<std::size_t>(i * kStrideC + 2 * s.leading_c() + 1)],
              product(s, 1, 2, i * kStrideA, i * kStrideB));
  }
}

TEST_F(Blas, SyrkWritesItsTriangleOnly) {
  for (const bool transposed : {false, true}) {
    for (const auto triangle : {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER}) {
      const Sizes s{transposed, !transposed, 4, 4, 3};
      const int leading = s.leading_a();
      const auto* a = upload(entries<float>(leading * s.columns_a()), *stream_);
      auto* c = upload(std::vector<float>(16, 10), *stream_);
      const float alpha = 2, beta = 1;
      ASSERT_EQ(cublasSsyrk(handle_, triangle, operation(transposed), 4, 3, &alpha, a, leading, &beta, c, 4),
                CUBLAS_STATUS_SUCCESS);
      const auto result = fetch(c, 16, *stream_);
      for (int column = 0; column < 4; ++column) {
        for (int row = 0; row < 4; ++row) {
          float sum = 0;
          for (int p = 0; p < 3; ++p) {
            const auto at = [&](int i) { return entry(transposed ? i * leading + p : p * leading + i); };
            sum += at(row) * at(column);
          }
          const bool inside = triangle == CUBLAS_FILL_MODE_LOWER ? row >= column : row <= column;
          EXPECT_EQ(result[static_cast<std::size_t>(column * 4 + row)], inside ? 2 * sum + 10 : 10);
        }
      }
    }
  }
}

template <class Input, class Output, class Scalar>
void expect_gemm_of(cublasHandle_t handle, cudaStream_t stream, cudaDataType input, cudaDataType output,
                    cublasComputeType_t compute) {
  for (const Sizes& s : kAllSizes) {
    const auto* a = upload(entries<Input>(s.leading_a() * s.columns_a()), stream);
    const auto* b = upload(entries<Input>(s.leading_b() * s.columns_b()), stream);
    auto* c = device_array<Output>(static_cast<std::size_t>(s.leading_c() * s.n));
    const Scalar alpha = 1, beta = 0;
    ASSERT_EQ(cublasGemmEx(handle, operation(s.transpose_a), operation(s.transpose_b), s.m, s.n, s.k, &alpha, a, input,
                           s.leading_a(), b, input, s.leading_b(), &beta, c, output, s.leading_c(), compute,
                           CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    const auto result = fetch(c, static_cast<std::size_t>(s.leading_c() * s.n), stream);
    for (int column = 0; column < s.n; ++column) {
      for (int row = 0; row < s.m; ++row) {
        EXPECT_EQ(static_cast<float>(result[static_cast<std::size_t>(column * s.leading_c() + row)]),
                  product(s, row, column));
      }
    }
  }
}

TEST_F(Blas, GemmTakesTypes) {
  const cublasComputeType_t single = CUBLAS_COMPUTE_32F;
  expect_gemm_of<float, float, float>(handle_, *stream_, CUDA_R_32F, CUDA_R_32F, single);
  expect_gemm_of<__nv_bfloat16, __nv_bfloat16, float>(handle_, *stream_, CUDA_R_16BF, CUDA_R_16BF, single);
  expect_gemm_of<__nv_bfloat16, float, float>(handle_, *stream_, CUDA_R_16BF, CUDA_R_32F, single);
  expect_gemm_of<__half, __half, float>(handle_, *stream_, CUDA_R_16F, CUDA_R_16F, single);
  expect_gemm_of<__half, float, float>(handle_, *stream_, CUDA_R_16F, CUDA_R_32F, single);
  expect_gemm_of<double, double, double>(handle_, *stream_, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F);
}

TEST_F(Blas, Bfloat16IsAddedInFloatAndRoundedOnce) {
  // 256 + 1 + 1: 257 is no bfloat16, 258 is.
  const auto* a = upload<__nv_bfloat16>({256.0F, 1.0F, 1.0F}, *stream_);
  const auto* b = upload<__nv_bfloat16>({1.0F, 1.0F, 1.0F}, *stream_);
  auto* c = device_array<__nv_bfloat16>(1);
  const float alpha = 1, beta = 0;
  ASSERT_EQ(cublasGemmStridedBatchedEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 3, &alpha, a, CUDA_R_16BF, 1, 0, b,
                                       CUDA_R_16BF, 3, 0, &beta, c, CUDA_R_16BF, 1, 0, 1, CUBLAS_COMPUTE_32F,
                                       CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(static_cast<float>(fetch(c, 1, *stream_)[0]), 258.0F);
}

TEST_F(Blas, AnOperandOutsideDeviceMemoryIsRefused) {
  float own[4] = {};
  auto* a = device_array<float>(4);
  const float one = 1;
  EXPECT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 2, own, 2, &one, a, 2),
            CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 3, a, 2, &one, a, 2),
            CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 1, a, 2, &one, a, 2),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(complaints(), (std::vector<std::string>{"cublasSgemm: B is not device memory",
                                                    "cublasSgemm: A reaches past the end of its block"}));
  stream_.reset();
  start({});
}

TEST_F(Blas, TheStreamIsThatOfTheTimeOfTheCall) {
  auto* a = upload<float>({1}, *stream_);
  auto* c = device_array<float>(1);
  const float one = 1, zero = 0;
  const TestStream other;
  launch_pause(*stream_, 5);
  cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a, 1, a, 1, &zero, c, 1);
  cublasSetStream(handle_, other);
  EXPECT_EQ(cudaStreamQuery(other), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(*stream_), cudaErrorNotReady);
  EXPECT_EQ(fetch(c, 1, *stream_)[0], 1.0F);
}

}  // namespace
}  // namespace canzona::emulated_gpu
