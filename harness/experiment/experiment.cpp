#include "harness/experiment/experiment.hpp"

#include <fmt/format.h>

#include "harness/experiment/paths.hpp"
#include "harness/experiment/toml_file.hpp"
#include "reference/core/error.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona::harness {
namespace {

/// Runs `lookup` and puts the file in front of its complaint.
template <class Lookup>
auto within(const std::string& origin, const Lookup& lookup) {
  try {
    return lookup();
  } catch (const InputError& error) {
    throw InputError(origin + ": " + error.what());
  }
}

}  // namespace

std::string Point::name() const {
  return fmt::format("{}-dp{}-tp{}-{}-{}", request.config.name, request.mesh.dp, request.mesh.tp, request.strategy,
                     request.optimizer);
}

Experiment read_experiment(const std::filesystem::path& path) {
  const toml::table table = read_toml(path);
  TomlTable file(table, path.string());
  Experiment experiment;
  experiment.name = path.stem().string();
  experiment.title = file.text("title");
  if (const std::string kind = file.text("kind"); kind != "load")
    throw InputError(path.string(), "'kind'", "'" + kind + "'", "load");
  const DType gradient = parse_dtype(file.text("gradient_dtype", "fp32"), path.string() + ": 'gradient_dtype'");
  const std::vector<std::string> models = file.texts("models");
  const std::vector<std::string> strategies = file.texts("strategies");
  const std::vector<std::string> optimizers = file.texts("optimizers");
  std::vector<Mesh> meshes;
  for (TomlTable& mesh : file.tables("meshes")) {
    meshes.push_back(make_mesh(mesh.integer("dp", 1, kMostRanks), mesh.integer("tp", 1, kMostRanks)));
    mesh.finish();
  }
  file.finish();

  within(path.string(), [&] {
    for (const std::string& strategy : strategies) Strategies::instance().find(strategy);
    for (const std::string& optimizer : optimizers) reference::Optimizers::instance().find(optimizer);
    for (const Mesh& mesh : meshes) {
      for (const std::string& model : models) {
        for (const std::string& optimizer : optimizers) {
          for (const std::string& strategy : strategies) {
            experiment.points.push_back({{find_model(model), mesh, strategy, optimizer, {}, {}, {}, {}}, gradient});
          }
        }
      }
    }
  });
  return experiment;
}

Cost::Measured read_cost_file(const std::filesystem::path& path) {
  const toml::table table = read_toml(path);
  TomlTable file(table, path.string());
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  Cost::Measured measured;
  for (TomlTable& matrix : file.tables("matrix")) {
    const std::int64_t rows = matrix.integer("rows", 1, kLargest);
    const std::int64_t cols = matrix.integer("cols", 1, kLargest);
    measured[{rows, cols}] = matrix.number("seconds", 1e-12, 1e6);
    matrix.finish();
  }
  file.finish();
  return measured;
}

}  // namespace canzona::harness
