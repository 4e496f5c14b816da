// A study's folder as one file to share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace canzona::harness {

/// What must not leave the house, and what stands in its place.
using Replacements = std::vector<std::pair<std::string, std::string>>;

/// The text with every whole word of `replacements` replaced: next to it stands no letter, digit, '-' or '_'.
std::string without(const std::string& text, const Replacements& replacements);

/// Names of nodes in the folder's environment.json, the folder's own path and the home directory.
Replacements private_names(const std::filesystem::path& folder);

/// Writes records, cluster files, tables, figures and the report of `folder` as a compressed tar archive, the same
/// bytes for the same files; logs stay here. Throws InputError where there is nothing to pack, or tar does not end
/// well.
void write_archive(const std::filesystem::path& folder, const std::filesystem::path& output,
                   const Replacements& replacements);

}  // namespace canzona::harness
