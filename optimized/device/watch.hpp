// What a rank that waits for others needs to know.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/core/error.hpp"

namespace canzona::optimized {

/// A rank gives up because another has: what that one says counts.
class GaveUpAfterOthers : public Error {
 public:
  using Error::Error;
};

struct Watch {
  double deadline_seconds = 60;
  /// To be called now and then by whoever waits: others see that this rank lives.
  std::function<void()> alive = [] {};
  /// Whether another has given up already, so that it is no use to wait.
  std::function<bool()> is_over = [] { return false; };
  /// The members of a group that have not come, and where they stand, in words. Of none: those who have been silent, or
  /// all others.
  std::function<std::string(const std::vector<int>& missing)> describe = [](const std::vector<int>&) {
    return std::string("others");
  };
};

}  // namespace canzona::optimized
