// The host as a backend: its groups talk over the host's communicators.
#include "optimized/engine/backend.hpp"
#include "optimized/host/host_device.hpp"

namespace canzona::optimized {
namespace {

const BackendRegistration registration{Backend{
    .name = "host",
    .description = "OpenBLAS and threads; MPI or shared memory between ranks",
    .citation = "openblas.net; mpi-forum.org",
    .make =
        [](const Seat&, const Options&) {
          return Platform{make_host_device(), nullptr, nullptr, nullptr};
        },
}};

}  // namespace
}  // namespace canzona::optimized
