// Where the project's own files are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reference/model/config.hpp"

namespace canzona::harness {

/// The checkout: $CANZONA_ROOT, or the folder that the command was built from.
std::filesystem::path project_folder();

/// The names of experiments/models/*.json, alphabetical.
std::vector<std::string> model_names();

/// A model by its name in experiments/models, or by the path of a config.json. Throws InputError listing the names.
ModelConfig find_model(const std::string& name_or_path);

}  // namespace canzona::harness
