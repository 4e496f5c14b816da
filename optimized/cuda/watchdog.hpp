// Whoever waits for a GPU waits here: with a deadline, and an eye on what else may have gone wrong meanwhile.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <utility>

#include "optimized/device/watch.hpp"

namespace canzona::optimized {

class Watchdog {
 public:
  explicit Watchdog(Watch watch) : watch_(std::move(watch)) {}

  /// Something to look at now and then: `ask` throws when it went wrong. `abort` ends it, when something else did.
  struct Suspect {
    std::function<void()> ask;
    std::function<void()> abort;
  };
  using Place = std::list<Suspect>::iterator;
  Place add(Suspect suspect) { return suspects_.insert(suspects_.end(), std::move(suspect)); }
  void remove(Place place) { suspects_.erase(place); }

  /// Returns when is_done() does. Throws Error when a suspect does, or after the deadline, with where the others stand;
  /// then all suspects have been aborted, so that nothing waits on the device for ever.
  void wait(const std::function<bool()>& is_done);

 private:
  void look_around(double waited) const;

  Watch watch_;
  std::list<Suspect> suspects_;
};

}  // namespace canzona::optimized
