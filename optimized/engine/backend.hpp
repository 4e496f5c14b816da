// What the ranks of a mesh compute on and how their groups talk, by name: the host, or GPUs. A backend registers
// itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optimized/device/device.hpp"
#include "optimized/device/watch.hpp"
#include "optimized/host/host_communicator.hpp"
#include "reference/core/options.hpp"
#include "reference/core/registry.hpp"
#include "reference/mesh/mesh.hpp"

namespace canzona::optimized {

/// Where a rank stands when it asks for what it computes on.
struct Seat {
  const Mesh& mesh;
  int rank;
  int rank_on_machine;  ///< among the ranks of its machine, from 0
  int ranks_on_machine;
  bool is_process;          ///< or a thread
  HostCommunicator& world;  ///< all ranks
  Watch watch;              ///< over all ranks
};

/// A rank's own. Where a group has no communicator, it talks over the host's. Members go in reverse order.
struct Platform {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> world = nullptr, dp = nullptr, tp = nullptr;
  std::int64_t free_bytes = 0;  ///< this rank's share of the memory that is free
};

constexpr const char* kEmulated = "emulated";

struct Backend {
  static constexpr const char* noun = "--backend";

  std::string name;
  int order = 0;
  std::string description;
  std::string citation;
  std::string kind = "measured";  ///< of what a run records; kEmulated: seconds mean nothing and are not told
  bool has_graphs = false;        ///< Stream::capture gives graphs
  std::vector<OptionDescription> options = {};
  /// Of libraries and drivers that it uses, by name.
  std::function<std::map<std::string, std::string>()> versions;
  /// Throws InputError, in one line, where it cannot run here.
  std::function<void()> require = [] {};
  /// All ranks call.
  std::function<Platform(const Seat&, const Options&)> make;
};

using Backends = Registry<Backend>;
using BackendRegistration = Registration<Backend>;

/// A backend with its options.
struct ChosenBackend {
  const Backend* backend = &Backends::instance().find("host");
  Options options = {};
};

}  // namespace canzona::optimized
