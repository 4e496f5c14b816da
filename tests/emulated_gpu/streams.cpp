// The worker of a stream, and the list of all streams.
#include "tests/emulated_gpu/streams.hpp"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/internal.hpp"

namespace canzona::emulated_gpu {

namespace {

/// May return early. A system call, because a condition variable's mutex would order caller and worker.
void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/// Counters wrap around.
bool has_reached(std::uint32_t counter, std::uint32_t goal) { return static_cast<std::int32_t>(counter - goal) >= 0; }

struct Streams {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<CUstream_st>>> of_device;  // closed ones too, until `reset`
};

Streams& streams() {
  static auto* all = new Streams;  // workers may run until the process ends
  return *all;
}

thread_local bool inside_stream = false;

}  // namespace

void Record::pass() {
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  passed_.store(1, std::memory_order_release);
  wake(passed_);
}

bool Record::has_passed() const { return passed_.load(std::memory_order_acquire) != 0; }

void Record::wait() const {
  while (!has_passed()) sleep_while(passed_, 0);
}

Stream::Stream(int device, std::uint64_t seed, int largest_delay_us)
    : device_(device),
      newest_(new Node),
      oldest_(newest_),
      worker_([this, seed, largest_delay_us] { work(seed, largest_delay_us); }) {}

Stream::~Stream() {
  close();
  synchronize();
  delete oldest_;
}

void Stream::push(std::function<void()> body) {
  const std::lock_guard lock(callers_);
  if (is_captured()) return kept_.push_back(std::move(body));
  push_locked(std::move(body));
}

bool Stream::begin_capture() { return !captured_.exchange(true, std::memory_order_relaxed); }

std::vector<std::function<void()>> Stream::end_capture() {
  const std::lock_guard lock(callers_);
  captured_.store(false, std::memory_order_relaxed);
  return std::exchange(kept_, {});
}

void Stream::push_locked(std::function<void()> body) {
  auto* node = new Node;
  node->body = std::move(body);
  newest_->next.store(node, std::memory_order_release);
  newest_ = node;
  pushed_.fetch_add(1, std::memory_order_release);
  wake(pushed_);
}

const Record& Stream::record() {
  const std::lock_guard lock(callers_);
  Record& record = records_.emplace_back();
  push_locked([&record] { record.pass(); });
  return record;
}

void Stream::wait(const Record& record) {
  push([&record] { record.wait(); });
}

void Stream::synchronize() const {
  const std::uint32_t goal = pushed_.load(std::memory_order_relaxed);
  while (true) {
    const std::uint32_t done = done_.load(std::memory_order_acquire);
    if (has_reached(done, goal)) return;
    sleep_while(done_, done);
  }
}

bool Stream::is_idle() const {
  const std::uint32_t goal = pushed_.load(std::memory_order_relaxed);
  if (!has_reached(done_.load(std::memory_order_relaxed), goal)) return false;
  return has_reached(done_.load(std::memory_order_acquire), goal);
}

void Stream::close() {
  if (!open_.exchange(false, std::memory_order_relaxed)) return;
  push(nullptr);
  worker_.detach();
}

Stream::Node* Stream::next_of(const Node& node, std::uint32_t taken) const {
  while (true) {
    if (Node* next = node.next.load(std::memory_order_acquire)) return next;
    sleep_while(pushed_, taken);  // the kernel compares: reading here would order the worker after later pushes
  }
}

void Stream::delay(std::minstd_rand& random, int largest_us) {
  const int delay_us = std::uniform_int_distribution(0, largest_us)(random);
  if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
}

void Stream::work(std::uint64_t seed, int largest_delay_us) {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds
  std::seed_seq sequence{seed, seed >> 32};
  std::minstd_rand random(sequence);
  for (std::uint32_t taken = 0;; ++taken) {
    Node* node = next_of(*oldest_, taken);
    delete std::exchange(oldest_, node);
    const bool last = !node->body;
    if (!last) {
      delay(random, largest_delay_us);
      node->body();
      node->body = nullptr;
    }
    done_.fetch_add(1, std::memory_order_release);
    wake(done_);  // after the last, of the address alone: the stream may be gone
    if (last) return;
  }
}

Stream* open_stream(const char* caller, cudaStream_t stream, Captured captured) {
  const char* fault = nullptr;
  if (inside_stream) {
    fault = " is called inside a host function";
  } else if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    fault = " is given a default stream, which is not emulated";
  } else if (!stream->is_open()) {
    fault = " is given a destroyed stream";
  } else if (stream->is_captured() && captured == Captured::refused) {
    fault = " is given a stream that is captured";
  }
  if (fault == nullptr) return stream;
  complain(std::string(caller) + fault);
  return nullptr;
}

Stream* launchable_stream(const char* caller, cudaStream_t stream, Captured captured) {
  Stream* open = open_stream(caller, stream, captured);
  if (open == nullptr || open->device() == current_device()) return open;
  complain(std::string(caller) + " is given a stream of device " + std::to_string(open->device()) +
           " where the thread's device is " + std::to_string(current_device()));
  return nullptr;
}

void synchronize_streams(int device) {
  std::vector<const Stream*> of_device;
  {
    const std::lock_guard lock(streams().mutex);
    for (const auto& stream : streams().of_device[device]) of_device.push_back(stream.get());
  }
  for (const Stream* stream : of_device) stream->synchronize();
}

void run_on_stream(const std::function<void()>& body) {
  inside_stream = true;
  body();
  inside_stream = false;
}

void reset_streams() {
  const std::lock_guard lock(streams().mutex);
  streams().of_device.clear();
}

}  // namespace canzona::emulated_gpu

namespace emulated = canzona::emulated_gpu;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return emulated::keep(cudaErrorInvalidValue);
  const int device = emulated::current_device();
  const emulated::Settings& settings = emulated::settings();
  const std::lock_guard lock(emulated::streams().mutex);
  auto& of_device = emulated::streams().of_device[device];
  const std::uint64_t seed = settings.seed * 1'000'003 + static_cast<std::uint64_t>(device) * 1009 + of_device.size();
  of_device.push_back(std::make_unique<CUstream_st>(device, seed, settings.largest_delay_us));
  *stream = of_device.back().get();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (emulated::open_stream("cudaStreamDestroy", stream) == nullptr) {
    return emulated::keep(cudaErrorInvalidResourceHandle);
  }
  stream->close();
  return cudaSuccess;
}
