// canzona environment: is what was started where it was meant to be, and does a study fit?
#include "harness/environment/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/launch.hpp"
#include "harness/record/output_file.hpp"
#include "harness/run/identity.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

struct EnvironmentArguments : CommonArguments {
  LaunchArguments launch;
  std::string nodes;
  std::string ranks_per_node;
  std::string precision = "fp32";
  std::string cluster;
};

EnvironmentRequest request_of(EnvironmentArguments arguments, int ranks) {
  settle_mesh(arguments, ranks);
  EnvironmentRequest request;
  request.run.points = points_of(arguments);
  request.run.engine.tokens = tokens_of(arguments.launch.tokens, arguments.launch.sequence);
  request.run.engine.precision = precision_of(arguments.precision, request.run.points.front().gradient);
  request.run.backend = backend_of(arguments.launch);
  if (arguments.nodes.empty() != arguments.ranks_per_node.empty())
    throw InputError("--nodes and --ranks-per-node: one without the other");
  if (!arguments.nodes.empty()) {
    request.nodes = static_cast<int>(positive("--nodes", arguments.nodes, kMostRanks));
    request.ranks_per_node = static_cast<int>(positive("--ranks-per-node", arguments.ranks_per_node, kMostRanks));
  }
  if (!arguments.cluster.empty()) request.cluster = find_cluster(arguments.cluster);
  return request;
}

int run(const EnvironmentArguments& arguments) {
  std::optional<EnvironmentRequest> request;
  std::vector<Workload> workloads;
  std::unique_ptr<OutputFile> json;
  Machines machines;
  std::vector<Finding> findings;
  const auto prepare = [&](int ranks, bool writes) {
    request = request_of(arguments, ranks);
    workloads = workloads_of(request->run);
    if (writes) json = open_output(arguments.json, "--json");
    return Launch{workloads.front().mesh, identity_of(request->run)};
  };
  const auto body = [&](optimized::Rank& rank) {
    Machines of_all = machines_of(rank);
    auto own = examine(rank, of_all, *request, workloads);
    if (rank.index != 0) return;
    machines = std::move(of_all);
    findings = std::move(own);
  };
  return launch(arguments.launch, prepare, body, [&] {
    const nlohmann::ordered_json record = environment_record(*request, machines, findings);
    if (json) json->commit(text_of(record, 2));
    if (arguments.json != "-") fmt::print("{}", to_text(environment_table(record)));
    const bool usable = std::none_of(findings.begin(), findings.end(),
                                     [](const Finding& finding) { return finding.verdict == Verdict::bad; });
    return usable ? kSuccess : kCheckFailed;
  });
}

}  // namespace

void add_environment(CLI::App& app, Runner& chosen) {
  CLI::App* command = app.add_subcommand(
      "environment", "Examine where ranks were started: nodes, libraries, devices, memory, bandwidth, and what to do");
  const auto arguments = std::make_shared<EnvironmentArguments>();
  arguments->model = "qwen3-tiny";
  arguments->optimizer = "muon";
  arguments->bucket_size = "1000000";
  add_common(*command, *arguments);
  command->get_option("--bucket-size")->capture_default_str();
  add_launch(*command, arguments->launch);
  command->add_option("--precision", arguments->precision, "as of 'canzona run'")
      ->type_name("DTYPE")
      ->capture_default_str();
  command->add_option("--nodes", arguments->nodes, "how many nodes there should be [any number]")->type_name("N");
  command->add_option("--ranks-per-node", arguments->ranks_per_node, "how many ranks on each")->type_name("N");
  command->add_option("--cluster", arguments->cluster, "whose network the bandwidth is held against [none]")
      ->type_name("NAME|PATH");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
