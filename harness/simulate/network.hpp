// How long a collective takes. Bytes in, seconds out.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "harness/simulate/cluster.hpp"
#include "reference/mesh/mesh.hpp"

namespace canzona::harness {

/// The ranks of one collective as the network sees them.
struct CommunicationGroup {
  int ranks = 1;
  int nodes = 1;  ///< that they are spread over, evenly

  bool operator==(const CommunicationGroup&) const = default;
};

/// The DP and TP groups of a mesh whose adjacent ranks share nodes of `gpus_per_node`. With tp = gpus_per_node a DP
/// ring has one GPU a node.
CommunicationGroup dp_group(const Mesh& mesh, int gpus_per_node);
CommunicationGroup tp_group(const Mesh& mesh, int gpus_per_node);

/// How collectives of uneven shares are made of those that NCCL has.
enum class Uneven { per_owner, padded, send_recv };

std::string_view name_of(Uneven way);

/// Throws InputError unless `name` is per-owner, padded or send-recv.
Uneven parse_uneven(const std::string& name);

class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// Seconds; `bytes` is the whole buffer, of which each rank holds all.
  virtual double all_reduce(double bytes, const CommunicationGroup& group) const = 0;
  /// Reduce-scatter and all-gather of shares[r] bytes for rank r.
  virtual double reduce_scatter(const std::vector<double>& shares, const CommunicationGroup& group,
                                Uneven way) const = 0;
  virtual double all_gather(const std::vector<double>& shares, const CommunicationGroup& group, Uneven way) const = 0;
  /// Point to point all at once: the rank with most traffic sends or receives `busiest` bytes.
  virtual double all_to_all(double busiest, const CommunicationGroup& group) const = 0;
};

/// NCCL's own model (nccl 2.30.7, src/graph/tuning.cc): seconds = latency + bytes ÷ bandwidth along a ring, the fastest
/// of the LL, LL128 and Simple protocols; never faster than the efficiency that the cluster states for that size and
/// number of nodes. Rings only: NCCL would take a tree for some all-reduces and save a few per cent of them.
std::unique_ptr<Network> nccl_network(const Cluster& cluster);

/// The collectives that the cluster file gives seconds for, linear between them; uneven shares go straight between
/// ranks, so that the busiest counts, whatever the way. A group of one takes no time.
std::unique_ptr<Network> measured_network(const Cluster& cluster);

/// measured_network where the cluster has measured collectives, nccl_network otherwise.
std::unique_ptr<Network> network_of(const Cluster& cluster);

/// No latency, no end of bandwidth: what is left is computation.
std::unique_ptr<Network> free_network();

}  // namespace canzona::harness
