#include "harness/environment/environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/record/memory_record.hpp"
#include "harness/record/provenance.hpp"
#include "harness/run/machines.hpp"
#include "harness/run/timing.hpp"
#include "harness/simulate/network.hpp"
#include "optimized/device/host_clock.hpp"
#include "optimized/engine/footprint.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using optimized::Rank;

/// What a rank sees of its machine.
struct Surroundings {
  std::map<std::string, std::string> versions;
  int cores = 0;     ///< that this rank may run on
  int adapters = 0;  ///< of RDMA, with an active port
};

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

/// Ports under /sys/class/infiniband say "4: ACTIVE".
int active_adapters() {
  namespace fs = std::filesystem;
  int count = 0;
  std::error_code none;
  for (const auto& adapter : fs::directory_iterator("/sys/class/infiniband", none)) {
    bool is_active = false;
    for (const auto& port : fs::directory_iterator(adapter.path() / "ports", none)) {
      std::string state;
      std::getline(std::ifstream(port.path() / "state"), state);
      is_active = is_active || state.find("ACTIVE") != std::string::npos;
    }
    count += is_active ? 1 : 0;
  }
  return count;
}

std::vector<Surroundings> surroundings_of_all(Rank& rank, const optimized::Backend& backend) {
  const json own{{"versions", backend.versions()}, {"cores", allowed_cores()}, {"adapters", active_adapters()}};
  std::vector<Surroundings> all;
  for (const std::string& text : rank.world.all_gather(own.dump())) {
    const json other = json::parse(text);
    all.push_back({other["versions"], other["cores"], other["adapters"]});
  }
  return all;
}

/// "8" or, where machines differ, "8 to 16".
std::string range_text(std::vector<int> values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? std::to_string(*least) : fmt::format("{} to {}", *least, *most);
}

Finding ranks_by_node(const EnvironmentRequest& request, const Machines& machines) {
  std::vector<int> counts;
  for (const std::string& host : machines.names()) counts.push_back(machines.ranks_on(host));
  Finding finding{"ranks", fmt::format("{} on each of {} nodes", range_text(counts), counts.size())};
  if (request.nodes > 0) finding.wanted = fmt::format("{} on each of {} nodes", request.ranks_per_node, request.nodes);
  if (request.nodes > 0 && finding.found != finding.wanted) {
    finding.verdict = Verdict::bad;
    finding.advice =
        fmt::format("start them by srun --nodes={0} --ntasks-per-node={1}, or mpirun --map-by ppr:{1}:node",
                    request.nodes, request.ranks_per_node);
  }
  return finding;
}

Finding groups_within_nodes(const Mesh& mesh, const Machines& machines) {
  int leaving = 0;
  for (int rank = 0; rank < mesh.ranks(); rank += mesh.tp) {
    const auto group = mesh.tp_group(rank);
    leaving += std::any_of(group.begin(), group.end(), [&](int member) {
      return machines.hosts[static_cast<std::size_t>(member)] != machines.hosts[static_cast<std::size_t>(rank)];
    });
  }
  Finding finding{"tensor-parallel groups", fmt::format("{} of {} leave their node", leaving, mesh.dp), "none"};
  if (leaving > 0) {
    finding.verdict = Verdict::doubtful;
    finding.advice = fmt::format("place consecutive ranks on one node, and let tp ({}) divide their number", mesh.tp);
  }
  return finding;
}

Finding same_versions(const std::vector<Surroundings>& all) {
  std::vector<std::string> own;
  for (const auto& [name, version] : all.front().versions) own.push_back(name + " " + version);
  Finding finding{"libraries", fmt::format("{}", fmt::join(own, "; ")), "the same on every rank"};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& [name, version] : all[rank].versions) {
      if (all.front().versions.at(name) == version) continue;
      finding.found = fmt::format("rank {} has {} {}, rank 0 {}", rank, name, version, all.front().versions.at(name));
      finding.verdict = Verdict::bad;
      finding.advice = "load the same modules on every node, or set LD_LIBRARY_PATH alike";
      return finding;
    }
  }
  return finding;
}

Finding same_devices(const Machines& machines) {
  Finding finding{"devices", machines.devices.front(), "the same on every rank"};
  const auto& all = machines.devices;
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& name) { return name != all.front(); });
  if (other != all.end()) {
    finding.found = fmt::format("rank {} has {}, rank 0 {}", other - all.begin(), *other, all.front());
    finding.verdict = Verdict::bad;
    finding.advice = "ask for nodes of one kind (srun --constraint)";
  }
  return finding;
}

/// Each rank has a thread a stream that computes, and on the host that is its work.
Finding cores_for_ranks(const Machines& machines, const std::vector<Surroundings>& all) {
  std::vector<double> shares;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    // Where ranks are bound, what they may run on is theirs; otherwise they share it.
    const int sharing = machines.ranks_on(machines.hosts[rank]);
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const bool is_bound = all[rank].cores < cores;
    shares.push_back(static_cast<double>(all[rank].cores) / (is_bound ? 1 : sharing));
  }
  const double share = *std::min_element(shares.begin(), shares.end());
  Finding finding{"cores a rank", fmt::format("{:.3g}", share), "1 or more"};
  if (share < 1) {
    finding.verdict = Verdict::doubtful;
    finding.advice = "fewer ranks a node, or srun --cpus-per-task: what overlaps takes turns on a core";
  }
  return finding;
}

Finding adapters_of_nodes(const Machines& machines, const std::vector<Surroundings>& all) {
  std::vector<int> counts;
  for (const Surroundings& own : all) counts.push_back(own.adapters);
  Finding finding{"RDMA adapters a node", range_text(counts), "the same on every node"};
  const int least = *std::min_element(counts.begin(), counts.end());
  if (least != *std::max_element(counts.begin(), counts.end())) {
    finding.verdict = Verdict::bad;
    finding.advice = "a node has an adapter without link: see ibstat, and leave it out (sbatch --exclude)";
  } else if (least == 0 && machines.names().size() > 1) {
    finding.verdict = Verdict::doubtful;
    finding.advice = "what leaves a node goes over TCP; is the fabric's driver loaded (ls /sys/class/infiniband)?";
  }
  return finding;
}

/// Strategies are measured one at a time: those that fit can be.
Finding memory_of_strategies(Rank& rank, const EnvironmentRequest& request, const std::vector<Workload>& workloads) {
  Finding finding{"memory"};
  double most = 0;
  std::vector<std::string> refused;
  for (std::size_t index = 0; index < workloads.size(); ++index) {
    const std::string refusal = misfit(rank, request.run, {workloads[index]});
    if (!refusal.empty()) refused.push_back(fmt::format("{}: {}", request.run.points[index].request.strategy, refusal));
    const auto own = static_cast<double>(optimized::footprint(workloads[index], rank, request.run.engine).total());
    for (const std::string& text : rank.world.all_gather(fmt::format("{}", own)))
      most = std::max(most, std::stod(text));
  }
  if (!refused.empty()) {
    finding.verdict = refused.size() == workloads.size() ? Verdict::bad : Verdict::doubtful;
    finding.found = fmt::format("{}", fmt::join(refused, "; "));
    finding.advice = "more ranks, a larger tp, fewer --tokens, or --precision bf16";
    return finding;
  }
  double least = HUGE_VAL;
  for (const std::string& text : rank.world.all_gather(fmt::format("{}", rank.free_bytes)))
    least = std::min(least, std::stod(text));
  finding.found = fmt::format("{:.3g} GB free, the largest rank takes {:.3g} GB", least * 1e-9, most * 1e-9);
  return finding;
}

constexpr std::int64_t kMovedElements = std::int64_t{1} << 24;  // 64 MiB
constexpr int kTimings = 5;
constexpr double kPoor = 0.5;  // of what the cluster file says

/// All groups at once gather 64 MiB on each of their ranks; the slowest group's median counts.
double gather_seconds(Rank& rank, optimized::Communicator& group) {
  const optimized::Buffer buffer = rank.device.allocate_elements<float>(kMovedElements);
  optimized::Shares shares;
  for (const Range& range : even_ranges({0, kMovedElements}, group.size())) shares.push_back({range});
  const auto gather = group.all_gather(rank.device, buffer.as<float>(), shares);
  const auto stream = rank.device.make_stream();
  std::vector<double> samples;
  for (int timing = 0; timing <= kTimings; ++timing) {
    rank.world.all_gather("");
    const double begin = optimized::host_seconds();
    gather->start(*stream);
    stream->synchronize();
    if (timing > 0) samples.push_back(optimized::host_seconds() - begin);
  }
  double slowest = 0;
  for (const std::string& text : rank.world.all_gather(fmt::format("{}", spread_of(samples).median)))
    slowest = std::max(slowest, std::stod(text));
  return slowest;
}

Finding bandwidth_of(Rank& rank, optimized::Communicator& communicator, const std::string& what,
                     const CommunicationGroup& group, const std::optional<Cluster>& cluster) {
  constexpr double kBytes = static_cast<double>(kMovedElements) * sizeof(float);
  const double rate = kBytes / gather_seconds(rank, communicator);
  Finding finding{what, fmt::format("{:.3g} GB/s over {} ranks on {} nodes", rate * 1e-9, group.ranks, group.nodes)};
  if (!cluster) return finding;
  const std::vector<double> shares(static_cast<std::size_t>(group.ranks), kBytes / group.ranks);
  const double expected = kBytes / network_of(*cluster)->all_gather(shares, group, Uneven::per_owner);
  finding.wanted = fmt::format("half of {:.3g} GB/s ({})", expected * 1e-9, cluster->name);
  if (rate < kPoor * expected) {
    finding.verdict = Verdict::doubtful;
    finding.advice = group.nodes > 1 ? "see NCCL_DEBUG=INFO: does it use every adapter, and GPUDirect RDMA?"
                                     : "see nvidia-smi topo -m: do GPUs of a node talk over NVLink?";
  }
  return finding;
}

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::good: return "good";
    case Verdict::doubtful: return "doubtful";
    case Verdict::bad: return "BAD";
  }
  throw Error("no such verdict");
}

}  // namespace

std::vector<Finding> examine(Rank& rank, const Machines& machines, const EnvironmentRequest& request,
                             const std::vector<Workload>& workloads) {
  const Mesh& mesh = workloads.front().mesh;
  const std::vector<Surroundings> all = surroundings_of_all(rank, *request.run.backend.backend);
  std::vector<Finding> findings{ranks_by_node(request, machines), groups_within_nodes(mesh, machines),
                                same_versions(all)};
  if (!machines.devices.front().empty()) findings.push_back(same_devices(machines));
  findings.push_back(cores_for_ranks(machines, all));
  findings.push_back(adapters_of_nodes(machines, all));
  findings.push_back(memory_of_strategies(rank, request, workloads));
  const bool tells_time = request.run.backend.backend->kind != optimized::kEmulated;
  const int per_node = machines.ranks_on(machines.hosts.front());
  const auto add_bandwidth = [&](optimized::Communicator& group, const std::string& what, CommunicationGroup spread) {
    if (tells_time && spread.ranks > 1) findings.push_back(bandwidth_of(rank, group, what, spread, request.cluster));
  };
  add_bandwidth(rank.tp, "all-gather over TP", tp_group(mesh, per_node));
  add_bandwidth(rank.dp, "all-gather over DP", dp_group(mesh, per_node));
  if (rank.index != 0) return {};
  return findings;
}

Table environment_table(const ordered_json& record) {
  Table table;
  table.columns = {{"what", ""}, {"found", ""}, {"wanted", ""}, {"verdict", ""}, {"what to do", ""}};
  for (const ordered_json& finding : record["findings"]) {
    auto& row = table.rows.emplace_back();
    for (const char* key : {"what", "found", "wanted", "verdict", "advice"}) row.push_back(finding[key]);
  }
  return table;
}

ordered_json environment_record(const EnvironmentRequest& request, const Machines& machines,
                                const std::vector<Finding>& findings) {
  ordered_json json;
  json["provenance"] = provenance(request.run.backend.backend->name);
  json["hosts"] = machines.names();
  json["ranks"] = machines.hosts.size();
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"what", finding.what},
                                {"found", finding.found},
                                {"wanted", finding.wanted},
                                {"verdict", name_of(finding.verdict)},
                                {"advice", finding.advice}});
  }
  return json;
}

}  // namespace canzona::harness
