#include "harness/experiment/paths.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "reference/core/error.hpp"

namespace canzona::harness {

namespace fs = std::filesystem;

fs::path project_folder() {
  const char* root = std::getenv("CANZONA_ROOT");
  return root != nullptr && *root != '\0' ? fs::path(root) : fs::path(CANZONA_SOURCE_FOLDER);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(project_folder() / "experiments/models", missing)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

ModelConfig find_model(const std::string& name_or_path) {
  const fs::path own = project_folder() / "experiments/models" / (name_or_path + ".json");
  const bool is_path = name_or_path.find('/') != std::string::npos || fs::path(name_or_path).extension() == ".json";
  if (is_path) return read_model_config(name_or_path);
  std::error_code unknown;
  if (!fs::is_regular_file(own, unknown)) {
    throw InputError("", "model", "'" + name_or_path + "'",
                     fmt::format("{}, or the path of a config.json", fmt::join(model_names(), ", ")));
  }
  return read_model_config(own);
}

}  // namespace canzona::harness
