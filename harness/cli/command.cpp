#include "harness/cli/command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>

#include "harness/record/provenance.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

volatile std::sig_atomic_t interrupt_received = 0;

/// The first Ctrl-C asks to stop at a whole record; a second one ends the process at once.
void on_interrupt(int) {
  interrupt_received = 1;
  std::signal(SIGINT, SIG_DFL);
}

/// A message as one line.
int complain(const char* prefix, std::string message, int code) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "canzona: {}{}\n", prefix, message);
  return code;
}

}  // namespace

bool interrupted() { return interrupt_received != 0; }

int run_command(const std::vector<std::string>& arguments) {
  std::signal(SIGINT, on_interrupt);
  CLI::App app("canzona: plan, verify and compare parallel strategies for matrix optimizers", "canzona");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Print this help and that of every command");
  app.set_version_flag("--version", revision_name(),
                       "Print the revision that was built, with + where the tree differed");
  Runner chosen;
  add_list(app, chosen);
  add_plan(app, chosen);
  add_verify(app, chosen);
  add_simulate(app, chosen);
  add_run(app, chosen);
  add_calibrate(app, chosen);
  add_reproduce(app, chosen);
  add_environment(app, chosen);
  add_collect(app, chosen);
  add_pack(app, chosen);

  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  std::vector<std::string> line{"canzona"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  remember_command_line(line);
  try {
    const bool is_command =
        arguments.empty() || arguments[0].starts_with('-') || std::count(names.begin(), names.end(), arguments[0]) > 0;
    if (!is_command)
      throw InputError("", "command", "'" + arguments[0] + "'", fmt::format("{}", fmt::join(names, ", ")));
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
    app.parse(reversed);
    const int code = chosen();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw InputError("standard output cannot be written to");
    return code;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kSuccess;
  } catch (const CLI::CallForAllHelp&) {
    fmt::print("{}", app.help("", CLI::AppFormatMode::All));
    return kSuccess;
  } catch (const CLI::CallForVersion&) {
    fmt::print("{}\n", revision_name());
    return kSuccess;
  } catch (const CLI::ParseError& error) {
    return complain("", std::string(error.what()) + ", see --help", kBadInput);
  } catch (const InputError& error) {
    return complain("", error.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return complain("", "what was asked for does not fit into this machine's memory", kBadInput);
  } catch (const std::filesystem::filesystem_error& error) {
    return complain("", error.what(), kBadInput);
  } catch (const std::exception& error) {
    return complain("internal error: ", error.what(), kInternalError);
  }
}

}  // namespace canzona::harness
