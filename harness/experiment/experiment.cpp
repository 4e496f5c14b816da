#include "harness/experiment/experiment.hpp"

#include <fmt/format.h>

#include <set>

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

/// The names, each of which must be registered; ["all"] is all that are.
template <class Entries>
std::vector<std::string> names_in(const Entries& entries, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  if (names == std::vector<std::string>{"all"}) {
    for (const auto& entry : entries.all()) found.push_back(entry.name);
  } else {
    for (const std::string& name : names) found.push_back(entries.find(name).name);
  }
  return found;
}

}  // namespace

std::string Point::name() const {
  return fmt::format("{}-dp{}-tp{}-{}-{}", request.config.name, request.mesh.dp, request.mesh.tp, request.strategy,
                     request.optimizer);
}

DType parse_gradient_dtype(const std::string& name, const std::string& origin) {
  if (name == "fp32") return DType::fp32;
  if (name == "bf16") return DType::bf16;
  throw InputError("", origin, "'" + name + "'", "fp32, bf16");
}

Experiment read_experiment(const std::filesystem::path& path) {
  const toml::table table = read_toml(path);
  TomlTable file(table, path.string());
  Experiment experiment;
  experiment.name = path.stem().string();
  experiment.title = file.text("title");
  const std::string kind = file.text("kind");
  if (kind != "load" && kind != "step") throw InputError(path.string(), "'kind'", "'" + kind + "'", "load, step");
  experiment.kind = kind == "load" ? ExperimentKind::load : ExperimentKind::step;
  TrainingShape training;
  std::vector<std::string> clusters;
  if (experiment.kind == ExperimentKind::step) {
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
    clusters = file.texts("clusters");
    training = {file.integer("tokens_per_gpu", 1, kMostTokens), file.integer("sequence", 1, kMostTokens)};
  }
  const std::string refresh = file.text("refresh", "together");
  if (refresh != "together" && refresh != "staggered")
    throw InputError(path.string(), "'refresh'", "'" + refresh + "'", "together, staggered");
  if (file.has("remarks")) experiment.remarks = file.texts("remarks");
  const DType gradient =
      parse_gradient_dtype(file.text("gradient_dtype", "fp32"), path.string() + ": 'gradient_dtype'");
  const std::vector<std::string> models = file.texts("models");
  std::vector<std::string> strategies = file.texts("strategies");
  std::vector<std::string> optimizers = file.texts("optimizers");
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
  for (TomlTable& mesh : file.tables("meshes")) {
    const std::int64_t dp = mesh.integer("dp", 1, kMostRanks);
    sizes.emplace_back(dp, mesh.integer("tp", 1, kMostRanks));
    mesh.finish();
  }
  if (file.has("figures")) {
    for (TomlTable& figure : file.tables("figures")) {
      experiment.figures.push_back({figure.text("file"), figure.text("caption")});
      figure.finish();
    }
  }
  file.finish();

  std::set<std::string> point_names;
  within(path.string(), [&] {
    strategies = names_in(Strategies::instance(), strategies);
    optimizers = names_in(reference::Optimizers::instance(), optimizers);
    std::set<std::string> cluster_names;
    for (const std::string& name : clusters) {
      experiment.simulations.push_back({find_cluster(name), training});
      const std::string& own = experiment.simulations.back().cluster.name;
      if (!cluster_names.insert(own).second)
        throw InputError("", "the cluster", "'" + own + "' twice", "each name once");
    }
    for (const auto& [dp, tp] : sizes) {
      const Mesh mesh = make_mesh(dp, tp);
      for (const SimulationSettings& simulation : experiment.simulations) require_fitting(mesh, simulation.cluster);
      for (const std::string& model : models) {
        for (const std::string& optimizer : optimizers) {
          for (const std::string& strategy : strategies) {
            Point& point = experiment.points.emplace_back();
            point.request.config = find_model(model);
            point.request.mesh = mesh;
            point.request.strategy = strategy;
            point.request.optimizer = optimizer;
            point.gradient = gradient;
            if (reference::Optimizers::instance().find(optimizer).refresh_cost)
              point.request.optimizer_options["refresh"] = refresh;
            const std::string name = point.name();
            if (!point_names.insert(name).second)
              throw InputError("", "the point", "'" + name + "' twice", "each point once");
            (void)make_workload(experiment.points.back().request);  // refuse now what could not be planned later
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
