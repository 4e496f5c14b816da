// GPUs as a backend: NCCL between them, one communicator split into the groups of the mesh.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "optimized/cuda/check.hpp"
#include "optimized/cuda/nccl_communicator.hpp"
#include "optimized/engine/backend.hpp"
#include "optimized/host/versions.hpp"
#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

#if defined(CANZONA_EMULATED_GPU)
constexpr const char* kKind = kEmulated;
#else
constexpr const char* kKind = "measured";
#endif

/// Ranks on one machine take the GPUs that they see in turn.
int gpu_of(const Seat& seat) {
  const int gpus = count_gpus();
  if (!seat.is_process && seat.ranks_on_machine > gpus) {
    throw InputError("", "--ranks", std::to_string(seat.ranks_on_machine),
                     "up to " + std::to_string(gpus) + ", the GPUs here; as processes, several may share one");
  }
  return seat.rank_on_machine % gpus;
}

/// How many ranks have this one's GPU. A launcher may show each rank one alone: numbers of GPUs do not tell.
int ranks_sharing(const Seat& seat, const CudaDevice& device) {
  const std::string own = device.uuid();
  const auto all = seat.world.all_gather(own);
  return static_cast<int>(std::count(all.begin(), all.end(), own));
}

/// CUDA's numbers, as 13000.
std::string dotted(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::map<std::string, std::string> versions() {
  std::map<std::string, std::string> all = host_versions();
  int version = 0;
  check(cudaDriverGetVersion(&version));
  all["driver's CUDA"] = dotted(version);
  check(cudaRuntimeGetVersion(&version));
  all["CUDA"] = dotted(version);
  check(ncclGetVersion(&version));
  all["NCCL"] = fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  return all;
}

Platform make(const Seat& seat, const Options& options) {
  Platform platform;
  auto device = std::make_unique<CudaDevice>(gpu_of(seat), seat.watch, cuda_settings(options));
  CudaDevice& own = *device;
  platform.device = std::move(device);
  const int sharing = ranks_sharing(seat, own);
  // NCCL refuses two ranks of one GPU unless it takes them for ranks of two machines: good for tests.
  if (sharing > 1) setenv("NCCL_HOSTID", ("rank " + std::to_string(seat.rank)).c_str(), 0);
  auto world = std::make_unique<NcclCommunicator>(seat.world, own, parse_uneven_way(options.text("uneven")));
  platform.free_bytes = own.free_bytes() / sharing;
  const Coordinate at = seat.mesh.coordinate(seat.rank);
  platform.dp = world->split(at.tp);
  platform.tp = world->split(at.dp);
  platform.world = std::move(world);
  return platform;
}

const BackendRegistration registration{Backend{
    .name = "cuda",
    .order = 1,
    .description = "a GPU a rank: cuBLAS, cuSOLVER and own kernels, NCCL between ranks",
    .citation = "docs.nvidia.com/cuda; docs.nvidia.com/deeplearning/nccl",
    .kind = kKind,
    .has_graphs = true,
    .options = {{"uneven", WordOption{uneven_ways()}, "per-owner", "",
                 "how reduce-scatters and all-gathers of uneven shares are made of NCCL's even ones"},
                {"tf32", WordOption{{"on", "off"}}, "off", "", "fp32 products may round what they read to 10 bits"},
                {"symmetric", WordOption{symmetric_ways()}, "table", "",
                 "who computes symmetric products in bf16 and fp16: cuBLAS, own tiles of one triangle, or whoever was "
                 "measured to be faster"}},
    .versions = versions,
    .require = [] { count_gpus(); },
    .make = make,
}};

}  // namespace
}  // namespace canzona::optimized
