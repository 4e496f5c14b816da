#include "harness/record/provenance.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <canzona_revision.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace canzona::harness {
namespace {

constexpr int kRecordFormat = 1;

std::vector<std::string>& command_line() {
  static std::vector<std::string> arguments;
  return arguments;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace

void remember_command_line(const std::vector<std::string>& arguments) { command_line() = arguments; }

std::string machine_name() { return fmt::format("{}, {} cores", processor(), std::thread::hardware_concurrency()); }

std::string revision_name() { return fmt::format("{}{}", CANZONA_REVISION, CANZONA_DIRTY ? "+" : ""); }

nlohmann::ordered_json provenance(const std::string& backend) {
  nlohmann::ordered_json json;
  json["format"] = kRecordFormat;
  json["command"] = command_line();
  json["revision"] = CANZONA_REVISION;
  json["dirty"] = CANZONA_DIRTY;
  json["machine"] = {{"processor", processor()}, {"cores", std::thread::hardware_concurrency()}};
  json["backend"] = backend;
  return json;
}

}  // namespace canzona::harness
