// The experiments of experiments/paper: which points a table or figure is made of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/simulate/durations.hpp"
#include "reference/core/dtype.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::harness {

/// One point: a workload, and the type in which gradients travel.
struct Point {
  WorkloadRequest request;
  DType gradient = DType::fp32;

  /// "qwen3-32b-dp32-tp8-canzona-muon", the name of its record.
  std::string name() const;
};

/// What a simulation assumes besides the point.
struct SimulationSettings {
  Cluster cluster;
  TrainingShape training;
  Uneven uneven = Uneven::per_owner;
  bool overlap = true;
  std::vector<Cluster> ranks = {};  ///< by rank, where each computes at rates of its own; the rest is of cluster
};

/// The types in which gradients may travel. Throws InputError naming `origin`.
DType parse_gradient_dtype(const std::string& name, const std::string& origin);

/// A figure of the report: a file, relative to the report, and what it shows.
struct Figure {
  std::string file;
  std::string caption;
};

/// What an experiment is made of: loads counted from plans, or steps simulated on clusters.
enum class ExperimentKind { load, step };

/// One file of experiments/paper.
struct Experiment {
  std::string name;  ///< the file's stem
  ExperimentKind kind = ExperimentKind::load;
  std::string title;
  std::vector<std::string> remarks;  ///< paragraphs for the report
  std::vector<Point> points;
  std::vector<Figure> figures;
  std::vector<SimulationSettings> simulations;  ///< of a step experiment: every point runs under each
};

/// Reads `path`: title, kind ("load" or "step"), remarks, models, strategies and optimizers (["all"] takes all there
/// are), gradient_dtype, refresh (of optimizers that have one), meshes = [{dp, tp}], figures = [{file, caption}], and
/// of a step clusters, tokens_per_gpu, sequence. Throws InputError naming the file, the key, the value and what is
/// allowed; unknown keys and names are refused.
Experiment read_experiment(const std::filesystem::path& path);

/// Seconds by shape from a TOML file of [[matrix]] rows, cols, seconds.
Cost::Measured read_cost_file(const std::filesystem::path& path);

}  // namespace canzona::harness
