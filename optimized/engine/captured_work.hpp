// Work that an engine puts on a stream in every step, as a graph once it has settled.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "optimized/device/stream.hpp"

namespace canzona::optimized {

/// Of one place in a schedule.
class CapturedWork {
 public:
  /// Does `work` on the stream. Of each form it is called twice: the first time it does what it does, so that libraries
  /// set themselves up; the second it is captured, and from then on its graph is launched, that time included. Work
  /// without a form, or on a stream without graphs, is called every time.
  void run(Stream& stream, std::optional<std::int64_t> form, const std::function<void()>& work);

 private:
  std::map<std::int64_t, std::unique_ptr<Graph>> graphs_;  // by form; null: it was called once
};

}  // namespace canzona::optimized
