// canzona pack: a study as one file that can be given away.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "harness/cli/command.hpp"
#include "harness/record/archive.hpp"

namespace canzona::harness {
namespace {

struct PackArguments {
  std::string folder;
  std::string output;
  bool host_names = false;
};

int run(const PackArguments& arguments) {
  write_archive(arguments.folder, arguments.output,
                arguments.host_names ? Replacements{} : private_names(arguments.folder));
  fmt::print("{}\n", arguments.output);
  return kSuccess;
}

}  // namespace

void add_pack(CLI::App& app, Runner& chosen) {
  CLI::App* command = app.add_subcommand(
      "pack", "A study's records, cluster files, tables and figures as one archive, without names of hosts or homes");
  const auto arguments = std::make_shared<PackArguments>();
  command->add_option("folder", arguments->folder, "of the study")->required();
  command->add_option("--output", arguments->output, "the archive, .tar.gz")->required()->type_name("FILE");
  command->add_flag("--host-names", arguments->host_names, "leave the names of hosts and paths in");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
