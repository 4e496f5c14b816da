// What a launch finds where it was started, before it is trusted with a study.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/table.hpp"
#include "harness/run/machines.hpp"
#include "harness/run/run.hpp"
#include "harness/simulate/cluster.hpp"
#include "optimized/engine/rank.hpp"

namespace canzona::harness {

enum class Verdict { good, doubtful, bad };

/// One line of the examination.
struct Finding {
  std::string what;
  std::string found = {};
  std::string wanted = {};  ///< empty where anything is good
  Verdict verdict = Verdict::good;
  std::string advice = {};  ///< what to do unless it is good
};

struct EnvironmentRequest {
  RunRequest run;  ///< what is to be measured; its strategies one at a time
  int nodes = 0;   ///< that were asked for; 0: whatever there is
  int ranks_per_node = 0;
  std::optional<Cluster> cluster;  ///< whose network the bandwidth is held against
};

/// Ranks by machine, tensor-parallel groups that leave a machine, libraries and drivers, devices, cores, RDMA adapters,
/// memory of each strategy, and, but on an emulated device, the rate of an all-gather over either group. All ranks
/// call; the first gets the findings, the others nothing.
std::vector<Finding> examine(optimized::Rank& rank, const Machines& machines, const EnvironmentRequest& request,
                             const std::vector<Workload>& workloads);

/// Keys: provenance, hosts (by node), ranks, findings [{what, found, wanted, verdict, advice}].
nlohmann::ordered_json environment_record(const EnvironmentRequest& request, const Machines& machines,
                                          const std::vector<Finding>& findings);

/// A row a finding of such a record: what, found, wanted, verdict, and what to do.
Table environment_table(const nlohmann::ordered_json& record);

}  // namespace canzona::harness
