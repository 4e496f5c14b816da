// The options that the subcommands share, from text to checked values.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace canzona::harness {

/// As given on the command line. Numbers stay text until they are checked, so that every complaint reads alike. What is
/// absent has the strategy's own default.
struct CommonArguments {
  std::string model;
  std::string dp;
  std::string tp;
  std::string strategy = "all";
  std::string optimizer;
  std::optional<std::string> alpha;
  std::optional<std::string> cost;
  std::optional<std::string> cost_file;
  std::optional<std::string> capacity;
  std::optional<std::string> bucket_size;
  std::string gradient_dtype = "fp32";
  std::string split_qkv = "none";
  std::string split_fc1 = "off";
  std::optional<std::string> refresh;
  std::vector<std::string> strategy_options;   ///< NAME=VALUE
  std::vector<std::string> optimizer_options;  ///< NAME=VALUE
  std::string json;
};

/// Adds them to a subcommand; what `arguments` holds is shown as default.
void add_common(CLI::App& command, CommonArguments& arguments);

/// How many micro-batches: for the subcommands that unroll an iteration.
void add_micro_batches(CLI::App& command, std::string& micro_batches);

/// "NAME=VALUE" entries into `options`. Throws InputError, naming `flag`, on one that is none.
void add_options(const char* flag, const std::vector<std::string>& entries,
                 std::map<std::string, std::string>& options);

/// The strategies that were asked for: one, or all in their order. Throws InputError listing the names.
std::vector<std::string> strategies_of(const CommonArguments& arguments);

/// Options, bucket size and measured costs; config, mesh, strategy and optimizer are left to the caller.
WorkloadRequest settings_of(const CommonArguments& arguments);

/// A positive integer for `option`.
std::int64_t positive(const std::string& option, const std::string& text, std::int64_t most);

/// The points that were asked for, one a strategy.
std::vector<Point> points_of(const CommonArguments& arguments);

}  // namespace canzona::harness
