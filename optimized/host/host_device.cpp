#include "optimized/host/host_device.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "optimized/host/host_linear_algebra.hpp"
#include "optimized/host/host_stream.hpp"

namespace canzona::optimized {
namespace {

constexpr std::size_t kAlignment = 64;

class HostDevice final : public Device {
 public:
  explicit HostDevice(int threads) : team_(threads), linear_algebra_(team_) {}

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(team_, failure_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  LinearAlgebra& linear_algebra() override { return linear_algebra_; }
  void copy(Stream& stream, const void* from, void* to, std::size_t bytes) override {
    if (bytes > 0) stream.run([=] { std::memcpy(to, from, bytes); });  // of nothing, addresses may be null
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

  Buffer make_host_buffer(std::size_t bytes) override { return make_buffer(bytes); }

  Failure failure_;
  ThreadTeam team_;
  HostLinearAlgebra linear_algebra_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(int threads) { return std::make_unique<HostDevice>(threads); }

}  // namespace canzona::optimized
