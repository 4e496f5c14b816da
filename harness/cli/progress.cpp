#include "harness/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace canzona::harness {

Progress::Progress(std::string label, std::size_t total)
    : label_(std::move(label)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void Progress::advance() {
  const std::lock_guard lock(mutex_);
  ++done_;
  if (!terminal_ || std::chrono::steady_clock::now() - begin_ < std::chrono::seconds(2)) return;
  constexpr std::size_t kWidth = 40;
  const std::size_t filled = kWidth * done_ / total_;
  fmt::print(stderr, "\r{} [{}{}] {}/{}", label_, std::string(filled, '#'), std::string(kWidth - filled, ' '), done_,
             total_);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace canzona::harness
