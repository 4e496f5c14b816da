// What every record says of its making.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace canzona::harness {

/// Keeps the command line for the records of this process. Call once, from main.
void remember_command_line(const std::vector<std::string>& arguments);

/// The processor and its cores; the revision that was built, "+" where the tree differed from it.
std::string machine_name();
std::string revision_name();

/// Version of the record format, command line, git revision and whether the tree differed from it, machine (processor
/// and cores; no host name), backend.
nlohmann::ordered_json provenance(const std::string& backend);

}  // namespace canzona::harness
