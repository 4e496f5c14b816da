// Files that are whole or not there: written beside their place and renamed into it.
#pragma once

#include <filesystem>
#include <string>

namespace canzona::harness {

/// A file to be written. Construction creates its folder and proves that it can be written; nothing appears under its
/// name before `commit`. "-" is standard output.
class OutputFile {
 public:
  /// Throws InputError naming `option`, the path and the system's reason.
  OutputFile(std::filesystem::path path, const std::string& option);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void commit(const std::string& text);
  bool is_standard_output() const { return path_ == "-"; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::string option_;
};

}  // namespace canzona::harness
