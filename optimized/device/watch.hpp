// What a rank that waits for others needs to know.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace canzona::optimized {

struct Watch {
  double deadline_seconds = 60;
  /// To be called now and then by whoever waits: others see that this rank lives.
  std::function<void()> alive = [] {};
  /// The members of a group that have not come, and where they stand, in words.
  std::function<std::string(const std::vector<int>& missing)> describe = [](const std::vector<int>&) {
    return std::string("others");
  };
};

}  // namespace canzona::optimized
