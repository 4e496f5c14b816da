#include "optimized/engine/counting_device.hpp"

#include <cstddef>

#include "optimized/host/factorizations.hpp"

namespace canzona::optimized {
namespace {

/// Drops what it is given.
class NoStream final : public Stream {
 public:
  void run(std::function<void()>) override {}
  void run_pieces(std::int64_t, std::function<void(std::int64_t, std::int64_t)>) override {}
  void run_each(std::int64_t, std::function<void(std::int64_t)>) override {}
  void repeat_while(DevicePointer<const std::int32_t>, std::int64_t, std::function<void(Stream&)>) override {}
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}
};

class NoEvent final : public Event {
 public:
  double seconds() const override { return 0; }
  void synchronize() override {}
};

template <class T, class Base = MatrixProducts<T>>
class NoProducts : public Base {
 public:
  using In = typename MatrixProducts<T>::In;
  using Out = typename MatrixProducts<T>::Out;
  using Scalar = typename MatrixProducts<T>::Scalar;

  void products(Stream&, Scalar, In, Transpose, In, Transpose, Scalar, Out, std::int64_t) override {}
  void symmetric_products(Stream&, Scalar, In, Transpose, Scalar, Out, std::int64_t) override {}
  void commuting_products(Stream&, In, In, Scalar, Out, std::int64_t) override {}
  void quadratics(Stream&, Scalar, Scalar, In, Out, std::int64_t) override {}
};

template <class T>
class NoFactorizations final : public Factorizations<T> {
 public:
  explicit NoFactorizations(Device* like) : like_(like) {}

  std::int64_t bytes(std::int64_t n) const override {
    return like_ != nullptr ? like_->linear_algebra().factorizations<T>().bytes(n) : host_factorization_bytes<T>(n);
  }
  void eigh(Stream&, MatrixView<T>, DevicePointer<T>, DevicePointer<std::int32_t>, DevicePointer<std::byte>) override {}
  void qr(Stream&, MatrixView<T>, DevicePointer<std::byte>) override {}

 private:
  Device* like_;
};

class NoAlgebra final : public NoProducts<float, LinearAlgebra> {
 public:
  explicit NoAlgebra(Device* like) : fp64_factorizations_(like), fp32_factorizations_(like) {}

 private:
  MatrixProducts<double>& fp64() override { return fp64_; }
  MatrixProducts<Bf16>& bf16() override { return bf16_; }
  MatrixProducts<Fp16>& fp16() override { return fp16_; }
  Factorizations<double>& fp64_factorizations() override { return fp64_factorizations_; }
  Factorizations<float>& fp32_factorizations() override { return fp32_factorizations_; }

  NoProducts<double> fp64_;
  NoProducts<Bf16> bf16_;
  NoProducts<Fp16> fp16_;
  NoFactorizations<double> fp64_factorizations_;
  NoFactorizations<float> fp32_factorizations_;
};

/// Its addresses lead nowhere.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(Device* like) : algebra_(like) {}

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<NoStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<NoEvent>(); }
  LinearAlgebra& linear_algebra() override { return algebra_; }
  bool holds_values() const override { return false; }
  void copy(Stream&, const void*, void*, std::size_t) override {}
  void copy(Stream&, DevicePointer<const float>, std::int64_t, DevicePointer<float>, std::int64_t, std::int64_t,
            std::int64_t) override {}

 private:
  Buffer make_buffer(std::size_t bytes) override {
    static std::byte nowhere;
    return {&nowhere, bytes, [](void*) {}};
  }
  Buffer make_host_buffer(std::size_t bytes) override { return make_buffer(bytes); }

  NoAlgebra algebra_;
};

}  // namespace

std::unique_ptr<Device> make_counting_device(Device* like) { return std::make_unique<CountingDevice>(like); }

}  // namespace canzona::optimized
