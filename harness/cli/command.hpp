// The canzona command: its subcommands, exit codes and interruption.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace canzona::harness {

enum ExitCode {
  kSuccess = 0,
  kCheckFailed = 1,
  kBadInput = 2,
  kInternalError = 3,
  kRankFailed = 4,
  kInterrupted = 130
};

/// Parses `arguments` (without the program's name) and runs the subcommand. Bad input ends in one line on standard
/// error and kBadInput.
int run_command(const std::vector<std::string>& arguments);

/// Each adds its subcommand to `app`; `chosen` is set to what runs it.
using Runner = std::function<int()>;
void add_list(CLI::App& app, Runner& chosen);
void add_plan(CLI::App& app, Runner& chosen);
void add_simulate(CLI::App& app, Runner& chosen);
void add_run(CLI::App& app, Runner& chosen);
void add_calibrate(CLI::App& app, Runner& chosen);
void add_environment(CLI::App& app, Runner& chosen);
void add_collect(CLI::App& app, Runner& chosen);
void add_pack(CLI::App& app, Runner& chosen);
void add_verify(CLI::App& app, Runner& chosen);
void add_reproduce(CLI::App& app, Runner& chosen);

/// True after Ctrl-C: stop at the next whole record.
bool interrupted();

}  // namespace canzona::harness
