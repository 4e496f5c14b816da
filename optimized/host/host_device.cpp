#include "optimized/host/host_device.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "optimized/host/factorizations.hpp"
#include "optimized/host/host_stream.hpp"

namespace canzona::optimized {
namespace {

constexpr std::size_t kAlignment = 64;

CBLAS_TRANSPOSE blas(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }
int width(std::int64_t size) { return static_cast<int>(size); }

class HostLinearAlgebra final : public LinearAlgebra {
 public:
  void product(Stream& stream, float alpha, MatrixIn A, Transpose a, MatrixIn B, Transpose b, float beta,
               MatrixOut C) override {
    stream.run([=] {
      const std::int64_t k = a == Transpose::yes ? A.rows : A.cols;
      cblas_sgemm(CblasRowMajor, blas(a), blas(b), width(C.rows), width(C.cols), width(k), alpha, A.data.raw(),
                  width(A.cols), B.data.raw(), width(B.cols), beta, C.data.raw(), width(C.cols));
    });
  }

  void symmetric_product(Stream& stream, float alpha, MatrixIn A, Transpose a, float beta, MatrixOut C) override {
    stream.run([=] {
      const std::int64_t k = a == Transpose::yes ? A.rows : A.cols;
      cblas_ssyrk(CblasRowMajor, CblasUpper, blas(a), width(C.rows), width(k), alpha, A.data.raw(), width(A.cols), beta,
                  C.data.raw(), width(C.cols));
      mirror(C);
    });
  }

  std::int64_t factorization_bytes(std::int64_t n) const override { return host_factorization_bytes(n); }

  void eigh(Stream& stream, MatrixOut A, DevicePointer<float> values, DevicePointer<std::int32_t> found,
            DevicePointer<std::byte> work) override {
    stream.run([=] { found.raw()[0] = host_eigh(A.data.raw(), A.rows, values.raw(), work.raw()) ? 1 : 0; });
  }

  void qr(Stream& stream, MatrixOut A, DevicePointer<std::byte> work) override {
    stream.run([=] { host_qr(A.data.raw(), A.rows, work.raw()); });
  }

 private:
  /// The lower triangle becomes the upper, in blocks that fit the cache.
  static void mirror(MatrixOut C) {
    constexpr std::int64_t kBlock = 32;
    float* data = C.data.raw();
    const std::int64_t n = C.rows;
    for (std::int64_t row = 0; row < n; row += kBlock) {
      for (std::int64_t col = row; col < n; col += kBlock) {
        for (std::int64_t i = row; i < std::min(row + kBlock, n); ++i) {
          for (std::int64_t j = std::max(col, i + 1); j < std::min(col + kBlock, n); ++j)
            data[j * n + i] = data[i * n + j];
        }
      }
    }
  }
};

class HostDevice final : public Device {
 public:
  HostDevice() { openblas_set_num_threads(1); }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  LinearAlgebra& linear_algebra() override { return linear_algebra_; }
  void copy(Stream& stream, const void* from, void* to, std::size_t bytes) override {
    stream.run([=] { std::memcpy(to, from, bytes); });
  }
  void copy(Stream& stream, DevicePointer<const float> from, std::int64_t from_pitch, DevicePointer<float> to,
            std::int64_t to_pitch, std::int64_t width, std::int64_t rows) override {
    stream.run([=] {
      for (std::int64_t row = 0; row < rows; ++row)
        std::copy_n((from + row * from_pitch).raw(), width, (to + row * to_pitch).raw());
    });
  }

 private:
  Buffer make_buffer(std::size_t bytes) override {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    void* address = ::operator new(size, std::align_val_t(kAlignment));
    std::memset(address, 0, size);
    return {address, bytes, [](void* old) { ::operator delete(old, std::align_val_t(kAlignment)); }};
  }

  HostLinearAlgebra linear_algebra_;
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace canzona::optimized
