// Small models and workloads that a reader can check by hand.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/experiment/paths.hpp"
#include "reference/core/random.hpp"
#include "reference/strategies/strategy.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::testing_support {

/// A parameter of a made-up model.
struct Piece {
  Shape shape;
  Routing routing = Routing::matrix;
};

/// A model whose gradient buffer holds `pieces` in this order (so its parameters stand in the reverse order); one
/// decoder layer; every piece column-sharded.
inline Model model_of(const std::vector<Piece>& pieces) {
  Model model;
  model.name = "made up";
  model.layers = 1;
  for (std::size_t index = pieces.size(); index-- > 0;) {
    Parameter parameter;
    parameter.name = "piece " + std::to_string(index);
    parameter.shape = pieces[index].shape;
    parameter.routing = pieces[index].routing;
    parameter.sharding = Sharding::columns;
    parameter.row_segments = {parameter.shape.rows};
    parameter.layer = 1;
    parameter.blocks = {Block{"whole", {Range{0, parameter.shape.rows}}}};
    model.parameters.push_back(parameter);
  }
  return model;
}

/// The index in Model::parameters of the piece that was `index`-th in model_of.
inline int parameter_of(const Model& model, int index) { return static_cast<int>(model.parameters.size()) - 1 - index; }

/// FLOPs = elements.
inline Cost numel_cost() {
  const auto numel = [](Shape shape) { return MatrixCost{shape.numel(), shape.numel(), shape.numel()}; };
  return Cost(numel, numel);
}

/// Plans a made-up model; validated.
inline Plan plan_of(const std::string& name, const Model& model, const Mesh& mesh, const GradientBuffer& buffer,
                    const std::map<std::string, std::string>& options = {}) {
  const Strategy& strategy = Strategies::instance().find(name);
  Plan plan = strategy.plan(model, mesh, buffer, numel_cost(), Options(strategy.options, options, name));
  plan.strategy = name;
  validate(plan, model, buffer);
  return plan;
}

inline WorkloadRequest request_of(const std::string& model, Mesh mesh, const std::string& strategy,
                                  const std::string& optimizer = "muon") {
  WorkloadRequest request;
  request.config = harness::find_model(model);
  request.mesh = mesh;
  request.strategy = strategy;
  request.optimizer = optimizer;
  return request;
}

/// A registered dense optimizer under some options.
template <class Scalar = double>
std::unique_ptr<reference::Optimizer<Scalar>> dense_optimizer(const std::string& name,
                                                              const std::map<std::string, std::string>& given = {},
                                                              DType arithmetic = sizeof(Scalar) == 8 ? DType::fp64
                                                                                                     : DType::fp32) {
  const reference::OptimizerDescription& description = reference::Optimizers::instance().find(name);
  return description.make<Scalar>(Options(description.options, given, name), arithmetic);
}

/// Bell-shaped elements of variance 1.
template <class Scalar = double>
Matrix<Scalar> random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed = 1) {
  Matrix<Scalar> matrix(rows, cols);
  for (std::int64_t i = 0; i < matrix.size(); ++i)
    matrix.data()[i] = static_cast<Scalar>(random_normal(random_key({seed}), i));
  return matrix;
}

/// qwen3-tiny in several buckets.
inline Workload tiny_workload(Mesh mesh, const std::string& strategy, const std::string& optimizer = "muon") {
  WorkloadRequest request = request_of("qwen3-tiny", mesh, strategy, optimizer);
  request.bucket_size = 32768;
  return make_workload(request);
}

/// A path in the temporary folder that no other test uses, so that tests may run side by side.
inline std::filesystem::path own_path(const std::string& ending) {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::filesystem::path(::testing::TempDir()) /
         ("canzona-" + std::string(test->test_suite_name()) + "-" + test->name() + ending);
}

inline std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : Strategies::instance().all()) names.push_back(strategy.name);
  return names;
}

}  // namespace canzona::testing_support
