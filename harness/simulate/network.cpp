#include "harness/simulate/network.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

/// One protocol of NCCL's ring, microseconds as in tuning.cc: baseLat, hwLat of NVLink and of the network, and its
/// share of the bandwidth.
struct Protocol {
  double base;
  double nvlink_hop;
  double network_hop;
  double bandwidth;
  bool simple;
};
constexpr std::array<Protocol, 3> kProtocols{{
    {6.6, 0.6, 2.7, 0.5, false},    // LL
    {14.0, 1.9, 4.0, 0.92, false},  // LL128
    {8.4, 3.4, 14.0, 1.0, true},    // Simple
}};
constexpr double kMicro = 1e-6;
constexpr double kNetworkOverhead = 1.0;     // µs a step once a ring leaves the node, Intel hosts
constexpr double kSimpleOverheadFactor = 3;  // of that, under Simple
constexpr double kRingPlateau = 1.4;         // latency factor of a multi-node Simple all-reduce ring

class NcclNetwork final : public Network {
 public:
  explicit NcclNetwork(const Cluster& cluster) : cluster_(cluster) {}

  double all_reduce(double bytes, const CommunicationGroup& group) const override {
    const double n = group.ranks;
    return limited(ring(bytes, 2 * (n - 1) / n, 2 * (n - 1), 2.0 * (group.nodes - 1), group, true), bytes,
                   2 * (n - 1) / n, group);
  }

  double reduce_scatter(const std::vector<double>& shares, const CommunicationGroup& group, Uneven way) const override {
    if (way == Uneven::send_recv) return send_recv(shares, group);
    if (way == Uneven::padded || is_even(shares)) return even(padded(shares), group);
    const double bytes = std::accumulate(shares.begin(), shares.end(), 0.0);
    return limited(per_owner(shares, group), bytes, (group.ranks - 1.0) / group.ranks, group);
  }

  double all_gather(const std::vector<double>& shares, const CommunicationGroup& group, Uneven way) const override {
    if (way == Uneven::send_recv) return send_recv(shares, group);
    // Grouped broadcasts are fused into one ring since NCCL 2.29.2: as an even all-gather of as many bytes.
    return even(way == Uneven::padded ? padded(shares) : std::accumulate(shares.begin(), shares.end(), 0.0), group);
  }

  double all_to_all(double busiest, const CommunicationGroup& group) const override {
    if (group.ranks == 1) return 0;
    const Protocol& simple = kProtocols.back();
    const double hop = group.nodes > 1 ? simple.network_hop : simple.nvlink_hop;
    return (simple.base + hop) * kMicro + busiest / bandwidth(group);
  }

 private:
  static bool is_even(const std::vector<double>& shares) {
    return std::all_of(shares.begin(), shares.end(), [&](double share) { return share == shares.front(); });
  }
  static double padded(const std::vector<double>& shares) {
    return *std::max_element(shares.begin(), shares.end()) * static_cast<double>(shares.size());
  }

  /// Nominal bytes a second along the ring: inside a node by NVLink; between nodes by the NICs of the group's GPUs in a
  /// node, which carry a ring each.
  double nominal(const CommunicationGroup& group) const {
    if (group.nodes == 1) return cluster_.nvlink_bytes_per_second;
    const double nics = static_cast<double>(group.ranks) / group.nodes;
    return nics > 1 ? std::min(nics * cluster_.nic_bytes_per_second, cluster_.nvlink_bytes_per_second)
                    : cluster_.nic_bytes_per_second;
  }
  double bandwidth(const CommunicationGroup& group) const {
    return nominal(group) * cluster_.efficiency_of_large(group.nodes);
  }

  /// Never faster than the measured efficiency at this size. That table holds groups of every GPU of their nodes; a
  /// group with a share of them moves as many bytes a ring as such a group would with proportionally more.
  double limited(double seconds, double bytes, double factor, const CommunicationGroup& group) const {
    if (group.ranks == 1 || bytes == 0) return seconds;
    const double whole = bytes * cluster_.gpus_per_node * group.nodes / group.ranks;
    return std::max(seconds, bytes * factor / (nominal(group) * cluster_.efficiency_at(whole, group.nodes)));
  }

  /// base + (steps − inter)·max(intra hop, overhead) + inter·inter hop, in seconds. NCCL adds twice the latency that a
  /// NIC's plugin reports to an inter hop; no figure of it is at hand, so it is 0 here.
  static double latency(const Protocol& protocol, double steps, double inter, const CommunicationGroup& group,
                        bool all_reduce) {
    const double overhead = group.nodes > 1 ? kNetworkOverhead * (protocol.simple ? kSimpleOverheadFactor : 1) : 0;
    const double intra_hop = std::max(protocol.nvlink_hop, overhead);
    const double total = protocol.base + (steps - inter) * intra_hop + inter * protocol.network_hop;
    return total * kMicro * (all_reduce && protocol.simple && group.nodes > 1 ? kRingPlateau : 1);
  }

  double ring(double bytes, double factor, double steps, double inter, const CommunicationGroup& group,
              bool all_reduce) const {
    if (group.ranks == 1 || bytes == 0) return 0;
    double fastest = HUGE_VAL;
    for (const Protocol& protocol : kProtocols) {
      const double transfer = bytes * factor / (bandwidth(group) * protocol.bandwidth);
      fastest = std::min(fastest, latency(protocol, steps, inter, group, all_reduce) + transfer);
    }
    return fastest;
  }

  double even(double bytes, const CommunicationGroup& group) const {
    const double n = group.ranks;
    return limited(ring(bytes, (n - 1) / n, n - 1, group.nodes - 1.0, group, false), bytes, (n - 1) / n, group);
  }

  /// Grouped reduces, one to each owner, are not fused: the ring fills once, then base + S_i ÷ bandwidth for each.
  double per_owner(const std::vector<double>& shares, const CommunicationGroup& group) const {
    if (group.ranks == 1) return 0;
    const Protocol& simple = kProtocols.back();
    double seconds = latency(simple, group.ranks - 1.0, group.nodes - 1.0, group, false) - simple.base * kMicro;
    for (const double share : shares) {
      if (share > 0) seconds += simple.base * kMicro + share / bandwidth(group);
    }
    return seconds;
  }

  /// Every share goes straight between its owner and each other rank: the busiest is who sends or receives most.
  double send_recv(const std::vector<double>& shares, const CommunicationGroup& group) const {
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    double busiest = 0;
    for (const double share : shares) busiest = std::max({busiest, total - share, (group.ranks - 1.0) * share});
    return total > 0 ? all_to_all(busiest, group) : 0;
  }

  Cluster cluster_;
};

class FreeNetwork final : public Network {
 public:
  double all_reduce(double, const CommunicationGroup&) const override { return 0; }
  double reduce_scatter(const std::vector<double>&, const CommunicationGroup&, Uneven) const override { return 0; }
  double all_gather(const std::vector<double>&, const CommunicationGroup&, Uneven) const override { return 0; }
  double all_to_all(double, const CommunicationGroup&) const override { return 0; }
};

class MeasuredNetwork final : public Network {
 public:
  explicit MeasuredNetwork(const Cluster& cluster) : seconds_(cluster.collective_seconds) {}

  double all_reduce(double bytes, const CommunicationGroup& group) const override {
    return seconds(CollectiveKind::all_reduce, bytes, group);
  }
  double reduce_scatter(const std::vector<double>& shares, const CommunicationGroup& group, Uneven) const override {
    return seconds(CollectiveKind::reduce_scatter, as_even(shares), group);
  }
  double all_gather(const std::vector<double>& shares, const CommunicationGroup& group, Uneven) const override {
    return seconds(CollectiveKind::all_gather, as_even(shares), group);
  }
  double all_to_all(double busiest, const CommunicationGroup& group) const override {
    return seconds(CollectiveKind::all_to_all, busiest, group);
  }

 private:
  /// The buffer of even shares whose ranks send as much as the busiest here sends or receives.
  static double as_even(const std::vector<double>& shares) {
    const auto ranks = static_cast<double>(shares.size());
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    double busiest = 0;
    for (const double share : shares) busiest = std::max({busiest, total - share, (ranks - 1) * share});
    return ranks > 1 ? busiest * ranks / (ranks - 1) : total;
  }

  /// Of the numbers of nodes and then of ranks measured that are nearest in proportion.
  double seconds(CollectiveKind kind, double bytes, const CommunicationGroup& group) const {
    if (group.ranks == 1 || bytes == 0) return 0;
    const std::vector<std::pair<double, double>>* points = nullptr;
    std::pair nearest(HUGE_VAL, HUGE_VAL);
    const auto apart = [](double a, double b) { return std::abs(std::log(a / b)); };
    for (const auto& [key, own] : seconds_) {
      const std::pair distance(apart(key.nodes, group.nodes), apart(key.ranks, group.ranks));
      if (key.kind != kind || distance >= nearest) continue;
      nearest = distance;
      points = &own;
    }
    if (points == nullptr) {
      throw InputError("", "the cluster's collectives", fmt::format("no {}", name_of(kind)),
                       "each kind that the plan needs");
    }
    if (bytes <= points->front().first) return points->front().second;
    for (std::size_t index = 1; index < points->size(); ++index) {
      const auto& [x0, y0] = (*points)[index - 1];
      const auto& [x1, y1] = (*points)[index];
      if (bytes <= x1) return y0 + (y1 - y0) * (bytes - x0) / (x1 - x0);
    }
    return points->back().second * bytes / points->back().first;
  }

  std::map<MeasuredCollective, std::vector<std::pair<double, double>>> seconds_;
};

int nodes_of(std::int64_t span, int gpus_per_node) {
  return static_cast<int>((span + gpus_per_node - 1) / gpus_per_node);
}

}  // namespace

CommunicationGroup dp_group(const Mesh& mesh, int gpus_per_node) {
  const std::int64_t span = static_cast<std::int64_t>(mesh.dp - 1) * mesh.tp + 1;  // from the first to the last rank
  return {mesh.dp, std::min(mesh.dp, nodes_of(span, gpus_per_node))};
}

CommunicationGroup tp_group(const Mesh& mesh, int gpus_per_node) {
  int nodes = 1;  // of the group that straddles most
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(mesh.dp) * mesh.tp; first += mesh.tp) {
    nodes = std::max(nodes, static_cast<int>((first + mesh.tp - 1) / gpus_per_node - first / gpus_per_node + 1));
  }
  return {mesh.tp, nodes};
}

std::string_view name_of(Uneven way) {
  switch (way) {
    case Uneven::per_owner: return "per-owner";
    case Uneven::padded: return "padded";
    case Uneven::send_recv: return "send-recv";
  }
  throw Error("no such way");
}

Uneven parse_uneven(const std::string& name) {
  for (const Uneven way : {Uneven::per_owner, Uneven::padded, Uneven::send_recv}) {
    if (name == name_of(way)) return way;
  }
  throw InputError("", "--uneven", "'" + name + "'", "per-owner, padded, send-recv");
}

std::unique_ptr<Network> nccl_network(const Cluster& cluster) { return std::make_unique<NcclNetwork>(cluster); }

std::unique_ptr<Network> measured_network(const Cluster& cluster) { return std::make_unique<MeasuredNetwork>(cluster); }

std::unique_ptr<Network> network_of(const Cluster& cluster) {
  const bool is_measured = !cluster.collective_seconds.empty() || cluster.gpus == 1;
  return is_measured ? measured_network(cluster) : nccl_network(cluster);
}

std::unique_ptr<Network> free_network() { return std::make_unique<FreeNetwork>(); }

}  // namespace canzona::harness
