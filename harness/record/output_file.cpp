#include "harness/record/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

[[noreturn]] void reject(const std::string& option, const std::filesystem::path& path, const std::string& reason) {
  throw InputError("", option, fmt::format("'{}' ({})", path.string(), reason), "a file that can be written, or -");
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, const std::string& option)
    : path_(std::move(path)), option_(option) {
  if (is_standard_output()) return;
  std::error_code error;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), error);
  if (error) reject(option_, path_, error.message());
  if (std::filesystem::is_directory(path_)) reject(option_, path_, "a folder");
  temporary_ = path_;
  temporary_ += fmt::format(".{}.part", getpid());
  errno = 0;
  if (!std::ofstream(temporary_)) reject(option_, path_, std::strerror(errno));
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void OutputFile::commit(const std::string& text) {
  if (is_standard_output()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  errno = 0;
  std::ofstream file(temporary_, std::ios::binary);
  file << text;
  file.close();
  if (!file) reject(option_, path_, std::strerror(errno));
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) reject(option_, path_, error.message());
  temporary_.clear();
}

}  // namespace canzona::harness
