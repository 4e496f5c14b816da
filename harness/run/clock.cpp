#include "harness/run/clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "optimized/device/host_clock.hpp"

namespace canzona::harness {
namespace {

constexpr int kMeetings = 16;  // the quickest of which counts

/// The clock that this process reads: that of its machine since it started, moved by its time namespace.
std::string clock_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code unknown;
  return boot + std::filesystem::read_symlink("/proc/self/ns/time", unknown).string();
}

std::string text_of(const std::array<Meeting, kMeetings>& meetings) {
  return {reinterpret_cast<const char*>(meetings.data()), sizeof(meetings)};
}

std::vector<Meeting> meetings_in(const std::string& text) {
  std::vector<Meeting> meetings(kMeetings);
  std::memcpy(meetings.data(), text.data(), std::min(text.size(), sizeof(Meeting) * meetings.size()));
  return meetings;
}

}  // namespace

ClockOffset offset_between(const std::vector<Meeting>& own, const std::vector<Meeting>& first) {
  double least = -HUGE_VAL, most = HUGE_VAL;
  for (std::size_t meeting = 0; meeting < own.size(); ++meeting) {
    least = std::max(least, own[meeting].came - first[meeting].left);
    most = std::min(most, own[meeting].left - first[meeting].came);
  }
  return {(least + most) / 2, (most - least) / 2};
}

AlignedClock::AlignedClock(optimized::Rank& rank) : rank_(rank) {
  const std::vector<std::string> names = rank.world.all_gather(clock_name());
  is_shared_ = std::count(names.begin(), names.end(), names.front()) == static_cast<std::ptrdiff_t>(names.size());
}

void AlignedClock::align() {
  if (is_shared_) return;
  std::array<Meeting, kMeetings> meetings;
  for (Meeting& meeting : meetings) {
    meeting.came = optimized::host_seconds();
    rank_.world.all_gather("");
    meeting.left = optimized::host_seconds();
  }
  const std::vector<std::string> all = rank_.world.all_gather(text_of(meetings));
  offset_ = offset_between(meetings_in(all[static_cast<std::size_t>(rank_.index)]), meetings_in(all.front()));
}

}  // namespace canzona::harness
