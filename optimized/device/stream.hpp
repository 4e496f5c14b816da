// Streams run what is given to them in order; events tie streams to each other. The meaning is CUDA's on every backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "optimized/device/memory.hpp"

namespace canzona::optimized {

struct GpuQueue;  // kernel.hpp

/// A point that a stream passes, again and again.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  virtual ~Event() = default;

  /// When the latest record was passed, in seconds on the host's clock (host_clock.hpp); after synchronize().
  virtual double seconds() const = 0;
  /// Blocks the caller until the latest record has been passed.
  virtual void synchronize() = 0;
};

class Stream;

/// Work that was captured on a stream, to be put there again as one.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  virtual ~Graph() = default;

  /// Asynchronous on the stream. It may not run on two at a time.
  virtual void launch(Stream& stream) = 0;
};

/// An in-order queue of work, asynchronous to whoever fills it.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// Where its kernels are launched; null where functors run on the host. launch.hpp asks.
  virtual const GpuQueue* gpu() const { return nullptr; }

  /// Runs `task` on the host when the work before it is done; work after it waits for it.
  virtual void run(std::function<void()> task) = 0;
  /// The same, in pieces of [0, count) that may run side by side: task(begin, end) of each.
  virtual void run_pieces(std::int64_t count, std::function<void(std::int64_t begin, std::int64_t end)> task) {
    run([count, task = std::move(task)] { task(0, count); });
  }
  /// task(index) of every index in [0, count), side by side. Over consecutive calls with one count, what belongs to an
  /// index must touch nothing of another index: a backend may take one index through all of them, in order, before it
  /// takes the next.
  virtual void run_each(std::int64_t count, std::function<void(std::int64_t index)> task) {
    run([count, task = std::move(task)] {
      for (std::int64_t index = 0; index < count; ++index) task(index);
    });
  }
  /// At most `most` times, and only while *go is not 0 when the work before is done: what `body` puts on the stream
  /// that it is given, events excepted. `body` may be called after this returns, or not at all. A backend whose streams
  /// cannot look at a flag by themselves may block the caller.
  virtual void repeat_while(DevicePointer<const std::int32_t> go, std::int64_t most,
                            std::function<void(Stream&)> body) = 0;
  /// Keeps what `body` puts on this stream, and does nothing of it; null, without calling body, where a backend has no
  /// graphs. Body may launch, copy within the device and call LinearAlgebra's products; it may neither run tasks of the
  /// host, nor repeat, record, wait or synchronize. Numbers that it hands to kernels are kept as they are; what changes
  /// from one launch to the next has to stand in the device's memory.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& /*body*/) { return nullptr; }
  /// `event` is passed when the work before is done.
  virtual void record(Event& event) = 0;
  /// Work after this waits for the latest record of `event` at the time of this call; an event never recorded is
  /// passed.
  virtual void wait(Event& event) = 0;
  /// Blocks the caller until all work is done. Rethrows what work on the device threw first; such a device does
  /// nothing any more.
  virtual void synchronize() = 0;
};

}  // namespace canzona::optimized
