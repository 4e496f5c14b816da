#include "optimized/cuda/cuda_stream.hpp"

#include <memory>
#include <utility>

#include "optimized/cuda/check.hpp"
#include "optimized/device/host_clock.hpp"

namespace canzona::optimized {
namespace {

/// Whether what a query asked for has come to pass.
bool is_passed(cudaError_t status) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // it is no error, and the next launch must not take it for its own
    return false;
  }
  check(status);
  return true;
}

class CudaGraph final : public Graph {
 public:
  /// Takes what was captured.
  explicit CudaGraph(cudaGraph_t captured) {
    const cudaError_t status = cudaGraphInstantiate(&executable_, captured, 0);
    cudaGraphDestroy(captured);
    check(status);
  }
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }

  void launch(Stream& stream) override { check(cudaGraphLaunch(executable_, native(stream))); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

cudaStream_t make_cuda_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

CudaClock::CudaClock(cudaStream_t stream) : stream_(stream) {
  check(cudaEventCreateWithFlags(&base_, cudaEventDefault));
  set_base();
}

CudaClock::~CudaClock() { cudaEventDestroy(base_); }

double CudaClock::seconds(cudaEvent_t event) {
  constexpr double kMilliseconds = 1e-3;
  constexpr double kSoon = 4;  // seconds that a float of milliseconds tells to half a microsecond
  float elapsed = 0;
  check(cudaEventElapsedTime(&elapsed, base_, event));
  const double seconds = base_seconds_ + kMilliseconds * static_cast<double>(elapsed);
  if (kMilliseconds * static_cast<double>(elapsed) > kSoon) set_base();
  return seconds;
}

void CudaClock::set_base() {
  const double before = host_seconds();
  check(cudaEventRecord(base_, stream_));
  check(cudaEventSynchronize(base_));
  base_seconds_ = (before + host_seconds()) / 2;
}

CudaEvent::CudaEvent(CudaClock& clock, Watchdog& watchdog) : clock_(clock), watchdog_(watchdog) {
  check(cudaEventCreateWithFlags(&event_, cudaEventDefault));
}

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

void CudaEvent::synchronize() {
  watchdog_.wait([this] { return is_passed(cudaEventQuery(event_)); });
}

CudaStream::CudaStream(cudaStream_t stream, Buffer partials, Failure& failure, Watchdog& watchdog)
    : queue_{stream, partials.as<double>().raw()},
      partials_(std::move(partials)),
      failure_(failure),
      watchdog_(watchdog) {
  check(cudaMallocHost(reinterpret_cast<void**>(&go_), sizeof(*go_)));
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(queue_.stream);
  cudaFreeHost(go_);
  cudaStreamDestroy(queue_.stream);
}

void CudaStream::run(std::function<void()> task) {
  struct Call {
    std::function<void()> task;
    Failure& failure;
  };
  auto call = std::make_unique<Call>(Call{std::move(task), failure_});
  const auto body = [](void* data) {
    const std::unique_ptr<Call> own(static_cast<Call*>(data));
    if (own->failure.has_happened()) return;
    try {
      own->task();
    } catch (...) {
      own->failure.keep(std::current_exception());
    }
  };
  check(cudaLaunchHostFunc(queue_.stream, body, call.get()));
  call.release();  // body's now
}

void CudaStream::repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                              std::function<void(Stream&)> body) {
  for (std::int64_t round = 0; round < most; ++round) {
    check(cudaMemcpyAsync(go_, go.raw(), sizeof(*go_), cudaMemcpyDefault, queue_.stream));
    synchronize();
    if (*go_ == 0) return;
    body(*this);
  }
}

/// Other threads may do what a capture would forbid them.
std::unique_ptr<Graph> CudaStream::capture(const std::function<void()>& body) {
  cudaGraph_t captured = nullptr;
  check(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal));
  try {
    body();
  } catch (...) {
    if (cudaStreamEndCapture(queue_.stream, &captured) == cudaSuccess) cudaGraphDestroy(captured);
    throw;
  }
  check(cudaStreamEndCapture(queue_.stream, &captured));
  return std::make_unique<CudaGraph>(captured);
}

void CudaStream::record(Event& event) { check(cudaEventRecord(static_cast<CudaEvent&>(event).get(), queue_.stream)); }

void CudaStream::wait(Event& event) {
  check(cudaStreamWaitEvent(queue_.stream, static_cast<CudaEvent&>(event).get(), 0));
}

void CudaStream::synchronize() {
  watchdog_.wait([this] { return is_passed(cudaStreamQuery(queue_.stream)); });
  failure_.rethrow();
}

}  // namespace canzona::optimized
