// The host as a backend: its groups talk over the host's communicators.
#include <fstream>
#include <limits>
#include <string>

#include "optimized/engine/backend.hpp"
#include "optimized/host/host_device.hpp"
#include "optimized/host/versions.hpp"

namespace canzona::optimized {
namespace {

/// Linux's estimate of what can be taken without swapping; without it, any amount.
std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::int64_t kilobytes = 0;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return std::numeric_limits<std::int64_t>::max();
}

const BackendRegistration registration{Backend{
    .name = "host",
    .description = "OpenBLAS and threads; MPI or shared memory between ranks",
    .citation = "openblas.net; mpi-forum.org",
    .versions = host_versions,
    .make =
        [](const Seat& seat, const Options&) {
          return Platform{.device = make_host_device(), .free_bytes = available_bytes() / seat.ranks_on_machine};
        },
}};

}  // namespace
}  // namespace canzona::optimized
