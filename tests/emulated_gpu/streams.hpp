// Streams as worker threads, and records of events. Nothing here orders two streams but a wait for a record.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace canzona::emulated_gpu {

/// One cudaEventRecord. It lives as long as its stream's object: counting owners would order the streams that count.
class Record {
 public:
  void pass();
  bool has_passed() const;
  void wait() const;
  /// Of the host's monotonic clock, once passed.
  double seconds() const { return seconds_; }

 private:
  std::atomic<std::uint32_t> passed_ = 0;
  double seconds_ = 0;
};

/// A queue with one consumer. Mutexes are held by callers only, and the worker sleeps in the kernel on a plain word:
/// so a caller is ordered after the worker by synchronize and query alone, never by pushing.
class Stream {
 public:
  Stream(int device, std::uint64_t seed, int largest_delay_us);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int device() const { return device_; }
  bool is_open() const { return open_.load(std::memory_order_relaxed); }

  /// While the stream is captured, the body is kept instead.
  void push(std::function<void()> body);
  /// False where it is captured already.
  bool begin_capture();
  /// What was pushed since.
  std::vector<std::function<void()>> end_capture();
  bool is_captured() const { return captured_.load(std::memory_order_relaxed); }
  const Record& record();
  void wait(const Record& record);
  void synchronize() const;
  /// Whether all that was pushed is done.
  bool is_idle() const;
  /// Takes no more. What was pushed is still done, and nobody is ordered by the end of it.
  void close();

 private:
  struct Node {
    std::function<void()> body;
    std::atomic<Node*> next = nullptr;
  };

  void push_locked(std::function<void()> body);
  void work(std::uint64_t seed, int largest_delay_us);
  /// Waits for the node after one, where `taken` nodes came before it.
  Node* next_of(const Node& node, std::uint32_t taken) const;
  static void delay(std::minstd_rand& random, int largest_us);

  const int device_;
  std::atomic<bool> open_ = true;
  std::mutex callers_;  // never held by the worker
  std::atomic<bool> captured_ = false;
  std::vector<std::function<void()>> kept_;
  Node* newest_;
  std::deque<Record> records_;
  std::atomic<std::uint32_t> pushed_ = 0;
  std::atomic<std::uint32_t> done_ = 0;
  Node* oldest_;  // the worker's: the node that was run last
  std::thread worker_;
};

/// Whether a call may be kept for a graph. The double keeps less than CUDA does: what a backend here has reason to.
enum class Captured { refused, kept };

/// nullptr, with a complaint, for what is no open stream: the default streams, a destroyed one, one that is captured by
/// a call that cannot be, or any stream inside a kernel or host function.
Stream* open_stream(const char* caller, cudaStream_t stream, Captured captured = Captured::refused);

/// As `open_stream`, and the stream must be of the calling thread's device, as for a kernel.
Stream* launchable_stream(const char* caller, cudaStream_t stream, Captured captured = Captured::refused);

void synchronize_streams(int device);

/// Runs a kernel or a host function, in which calls of CUDA are refused.
void run_on_stream(const std::function<void()>& body);

}  // namespace canzona::emulated_gpu

struct CUstream_st final : public canzona::emulated_gpu::Stream {
  using Stream::Stream;
};
