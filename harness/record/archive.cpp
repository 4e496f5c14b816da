#include "harness/record/archive.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/record/output_file.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> kShared{".json", ".toml", ".csv", ".md", ".svg", ".txt"};

bool is_part_of_a_word(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '-' || character == '_';
}

/// A folder that is gone with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / fmt::format("canzona-pack-{}", getpid())) {
    fs::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// The exit code of a program found on the PATH.
int run_program(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (posix_spawnp(&child, pointers.front(), nullptr, nullptr, pointers.data(), environ) != 0) return 127;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

std::string without(const std::string& text, const Replacements& replacements) {
  std::string result;
  for (std::size_t place = 0; place < text.size();) {
    const bool begins_word = place == 0 || !is_part_of_a_word(text[place - 1]);
    const auto found = std::find_if(replacements.begin(), replacements.end(), [&](const auto& replacement) {
      const std::string& name = replacement.first;
      const std::size_t end = place + name.size();
      return !name.empty() && text.compare(place, name.size(), name) == 0 &&
             (begins_word || !is_part_of_a_word(name.front())) &&
             (end == text.size() || !is_part_of_a_word(text[end]) || !is_part_of_a_word(name.back()));
    });
    if (found == replacements.end()) {
      result += text[place++];
    } else {
      result += found->second;
      place += found->first.size();
    }
  }
  return result;
}

Replacements private_names(const fs::path& folder) {
  Replacements replacements{{fs::weakly_canonical(folder).string(), "."}};
  if (const char* home = std::getenv("HOME"); home != nullptr && std::string(home) != "/")
    replacements.emplace_back(home, "~");
  std::ifstream stream(folder / "environment.json");
  const auto environment = nlohmann::json::parse(stream, nullptr, false);
  if (environment.is_object() && environment.contains("hosts")) {
    int node = 0;
    for (const std::string host : environment["hosts"]) {
      const std::string name = fmt::format("node{}", node++);
      replacements.emplace_back(host, name);
      replacements.emplace_back(host.substr(0, host.find('.')), name);
    }
  }
  std::stable_sort(replacements.begin(), replacements.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return replacements;
}

void write_archive(const fs::path& folder, const fs::path& output, const Replacements& replacements) {
  const TemporaryFolder temporary;
  const fs::path root = temporary.path() / "study";
  int count = 0;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->path().filename() == "logs") entry.disable_recursion_pending();
    if (!entry->is_regular_file() || !kShared.contains(entry->path().extension().string())) continue;
    std::ifstream stream(entry->path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const fs::path place = root / fs::relative(entry->path(), folder);
    fs::create_directories(place.parent_path());
    std::ofstream(place, std::ios::binary) << without(text, replacements);
    ++count;
  }
  if (count == 0) throw InputError("", "the folder", "'" + folder.string() + "'", "one that holds a study");
  const OutputFile proof(output, "--output");
  fs::path part = output;
  part += ".part";
  const int code = run_program({"tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner",
                                "--mode=u=rwX,go=rX", "-C", temporary.path().string(), "-czf", part.string(), "study"});
  if (code != 0)
    throw InputError("", "--output", fmt::format("'{}' (tar: {})", output.string(), code),
                     "a file that can be written");
  fs::rename(part, output);
}

}  // namespace canzona::harness
