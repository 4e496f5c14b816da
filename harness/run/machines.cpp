#include "harness/run/machines.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace canzona::harness {
namespace {

std::string own_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

std::vector<std::string> Machines::names() const {
  std::vector<std::string> found;
  for (const std::string& host : hosts) {
    if (std::count(found.begin(), found.end(), host) == 0) found.push_back(host);
  }
  return found;
}

int Machines::ranks_on(const std::string& host) const {
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), host));
}

Machines machines_of(optimized::Rank& rank) {
  return {rank.world.all_gather(own_host()), rank.world.all_gather(rank.device.name())};
}

}  // namespace canzona::harness
