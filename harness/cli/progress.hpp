// A progress bar for a person who waits: on a terminal, and only when the work takes more than two seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

namespace canzona::harness {

/// Draws on standard error. Silent when that is no terminal. `advance` may be called from several threads.
class Progress {
 public:
  Progress(std::string label, std::size_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void advance();

 private:
  std::string label_;
  std::size_t total_;
  std::size_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;
};

}  // namespace canzona::harness
