// How the subcommands that need real ranks start them: as processes of an MPI job, or as threads of this process.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cli/arguments.hpp"
#include "optimized/engine/layers.hpp"
#include "optimized/engine/rank.hpp"
#include "reference/executor/objective.hpp"

namespace canzona::harness {

struct LaunchArguments {
  std::string ranks;  ///< empty: this process is one of an MPI job, which may be a job of one
  std::string backend = "host";
  std::vector<std::string> backend_options;
  std::string deadline = "60";
  std::string tokens = "64";
  std::string sequence;  ///< empty: 4096, or all tokens where there are fewer
};

/// Adds them to a subcommand that has add_common's options.
void add_launch(CLI::App& command, LaunchArguments& arguments);

/// Throws InputError where there is no such backend or it cannot run here, and on options that it does not have.
optimized::ChosenBackend backend_of(const LaunchArguments& arguments);

/// --tokens and --sequence, which may be empty. Throws InputError unless the one is a multiple of the other.
optimized::Tokens tokens_of(const std::string& tokens, const std::string& sequence);

/// --precision, of what has weights. Throws InputError on fp64.
reference::Precision precision_of(const std::string& arithmetic, DType gradient);

/// dp and tp for so many ranks: what was not given follows. Throws InputError where they do not make that many.
void settle_mesh(CommonArguments& arguments, int ranks);

/// What a process has to say before ranks start.
struct Launch {
  Mesh mesh;
  nlohmann::ordered_json identity;  ///< what all processes must have in common, by name
};

/// prepare(ranks, writes) on each process (`writes` on the one that prints and writes files); body on each rank; finish
/// where results are, when all is done: its exit code is that of the launch. Processes whose binary or identity
/// differs, or one of which throws InputError, do not start: the first says why. A rank that fails or stalls ends all
/// with kRankFailed.
int launch(const LaunchArguments& arguments, const std::function<Launch(int ranks, bool writes)>& prepare,
           const optimized::RankBody& body, const std::function<int()>& finish);

}  // namespace canzona::harness
