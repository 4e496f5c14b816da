#include "harness/record/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject(const std::string& option, const fs::path& path, const std::string& reason) {
  throw InputError("", option, fmt::format("'{}' ({})", path.string(), reason), "a file that can be written, or -");
}

}  // namespace

OutputFile::OutputFile(fs::path path, const std::string& option) : path_(std::move(path)), option_(option) {
  if (is_standard_output()) return;
  std::error_code ignored, error;
  if (fs::is_symlink(path_, ignored)) path_ = fs::weakly_canonical(path_, error);
  if (!error && path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  if (error) reject(option_, path_, error.message());
  const fs::file_status status = fs::status(path_, error);
  if (status.type() == fs::file_type::none) reject(option_, path_, error.message());
  if (status.type() == fs::file_type::directory) reject(option_, path_, "a folder");
  if (fs::exists(status) && status.type() != fs::file_type::regular) return;
  temporary_ = path_;
  temporary_ += fmt::format(".{}.part", getpid());
  errno = 0;
  if (!std::ofstream(temporary_)) {
    const std::string reason = std::strerror(errno);
    temporary_.clear();
    reject(option_, path_, reason);
  }
  fs::remove(temporary_, error);  // a process that is killed leaves nothing behind
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove(temporary_, ignored);
}

void OutputFile::commit(const std::string& text) {
  if (is_standard_output()) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      reject(option_, path_, std::strerror(errno));
    }
  } else if (temporary_.empty()) {
    write(path_, text);
  } else {
    write(temporary_, text);
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) reject(option_, path_, error.message());
    temporary_.clear();
  }
}

void OutputFile::write(const fs::path& place, const std::string& text) const {
  errno = 0;
  std::ofstream file(place, std::ios::binary);
  file << text;
  file.close();
  if (!file) reject(option_, path_, std::strerror(errno));
}

std::unique_ptr<OutputFile> open_output(const std::string& path, const std::string& option) {
  return path.empty() ? nullptr : std::make_unique<OutputFile>(path, option);
}

std::string text_of(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace canzona::harness
