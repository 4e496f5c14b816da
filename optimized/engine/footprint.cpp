#include "optimized/engine/footprint.hpp"

#include <cstddef>
#include <memory>
#include <vector>

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

class NoAlgebra final : public NoProducts<float, LinearAlgebra> {
 public:
  std::int64_t factorization_bytes(std::int64_t n) const override { return host_factorization_bytes(n); }
  void eigh(Stream&, MatrixOut, DevicePointer<float>, DevicePointer<std::int32_t>, DevicePointer<std::byte>) override {}
  void qr(Stream&, MatrixOut, DevicePointer<std::byte>) override {}

 private:
  MatrixProducts<double>& fp64() override { return fp64_; }
  MatrixProducts<Bf16>& bf16() override { return bf16_; }
  MatrixProducts<Fp16>& fp16() override { return fp16_; }

  NoProducts<double> fp64_;
  NoProducts<Bf16> bf16_;
  NoProducts<Fp16> fp16_;
};

/// Its addresses lead nowhere.
class CountingDevice final : public Device {
 public:
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

class SilentCommunicator final : public HostCommunicator {
 public:
  SilentCommunicator(int size, int rank) : size_(size), rank_(rank) {}
  int size() const override { return size_; }
  int rank() const override { return rank_; }
  void exchange(const Transfer&) override {}

 private:
  int size_;
  int rank_;
};

Ledger footprint_with(const Workload& workload, int rank, HostCommunicator& world, Communicator& dp, Communicator& tp,
                      const EngineSettings& settings) {
  Platform platform;
  platform.device = std::make_unique<CountingDevice>();
  Board board(std::vector<Board::Place*>{});
  Rank own(rank, workload.mesh.coordinate(rank), platform, world, dp, tp, board);
  reference::Objective<float> objective(1);
  objective.recur(kGradientPeriod);
  return Engine(workload, own, objective, settings).memory();
}

}  // namespace

Ledger footprint(const Workload& workload, int rank, const EngineSettings& settings) {
  const Mesh& mesh = workload.mesh;
  const Coordinate at = mesh.coordinate(rank);
  SilentCommunicator world(mesh.ranks(), rank), dp(mesh.dp, at.dp), tp(mesh.tp, at.tp);
  Ledger own = footprint_with(workload, rank, world, dp, tp, settings);
  own.add(Purpose::communication, -own.of(Purpose::communication));
  return own;
}

Ledger footprint(const Workload& workload, Rank& rank, const EngineSettings& settings) {
  return footprint_with(workload, rank.index, rank.world, rank.dp, rank.tp, settings);
}

}  // namespace canzona::optimized
