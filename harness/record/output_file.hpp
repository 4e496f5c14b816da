// Files that are whole or not there: written beside their place and renamed into it.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace canzona::harness {

/// A file to be written. Construction creates its folder and proves that it can be written; nothing appears under its
/// name before `commit`. "-" is standard output. A link is followed; what is there and no regular file (a device, a
/// pipe) is written to directly.
class OutputFile {
 public:
  /// Throws InputError naming `option`, the path and the system's reason.
  OutputFile(std::filesystem::path path, const std::string& option);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Throws InputError when the text cannot be written whole.
  void commit(const std::string& text);

 private:
  bool is_standard_output() const { return path_ == "-"; }
  void write(const std::filesystem::path& place, const std::string& text) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  ///< empty where there is none
  std::string option_;
};

/// The file for `option`; none where its value is empty.
std::unique_ptr<OutputFile> open_output(const std::string& path, const std::string& option);

/// A record as text, ending in a newline; bytes that are no UTF-8 are replaced.
std::string text_of(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace canzona::harness
