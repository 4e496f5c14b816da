// Muon and AdamW against vectors made by running public implementations (tests/data/oracles/README.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/experiment/paths.hpp"
#include "reference/core/error.hpp"
#include "reference/optimizers/optimizer.hpp"

namespace canzona::reference {
namespace {

using nlohmann::json;

json read(const std::string& name) {
  std::ifstream file(harness::project_folder() / "tests/data/oracles" / name);
  return json::parse(file);
}

/// A vector's options under our names; an option that we lack is an error.
std::map<std::string, std::string> options_of(const json& given) {
  std::map<std::string, std::string> options;
  for (const auto& [name, value] : given.items()) {
    const bool is_assumed = (name == "weight_decay_form" && value == "decoupled_before") ||
                            (name == "norm" && value == "frobenius") ||
                            (name == "transpose" && value == "rows_greater") || (name == "amsgrad" && value == false) ||
                            name == "scale_factor";
    if (is_assumed) continue;
    if (name == "ns_coefficients") {
      for (const auto& triple : value) {
        options["coefficients"] += triple[0].dump() + "," + triple[1].dump() + "," + triple[2].dump() + ";";
      }
    } else if (name == "betas") {
      options["beta1"] = value[0].dump();
      options["beta2"] = value[1].dump();
    } else if (value.is_boolean()) {
      options[name] = value.get<bool>() ? "on" : "off";
    } else {
      options[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  return options;
}

template <class Scalar>
Matrix<Scalar> matrix_of(const json& numbers, const json& shape) {
  Matrix<Scalar> matrix(shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>());
  for (std::int64_t i = 0; i < matrix.size(); ++i) matrix.data()[i] = static_cast<Scalar>(numbers[i].get<double>());
  return matrix;
}

/// max over steps of ‖p − reference‖ ÷ the largest step of the reference so far.
template <class Scalar>
double worst_error(const json& vector) {
  const OptimizerDescription& description = Optimizers::instance().find(vector["optimizer"].get<std::string>());
  const DType arithmetic = sizeof(Scalar) == 8 ? DType::fp64 : DType::fp32;
  const auto optimizer =
      description.make<Scalar>(Options(description.options, options_of(vector["options"]), "vector"), arithmetic);
  Matrix<Scalar> parameter = matrix_of<Scalar>(vector["initial"], vector["shape"]);
  Matrix<double> previous = matrix_of<double>(vector["initial"], vector["shape"]);
  State<Scalar> state = optimizer->init(shape_of(parameter));
  double largest_step = 0;
  double worst = 0;
  for (const json& step : vector["steps"]) {
    const Matrix<Scalar> update = optimizer->step(matrix_of<Scalar>(step["gradient"], vector["shape"]), state);
    optimizer->apply(update.data(), parameter.data(), update.size());
    const Matrix<double> expected = matrix_of<double>(step["parameter"], vector["shape"]);
    largest_step = std::max(largest_step, (expected - previous).norm());
    const double error = (parameter.template cast<double>() - expected).norm();
    if (!(error <= worst * largest_step))
      worst = largest_step > 0 ? error / largest_step : (error == 0 ? 0.0 : HUGE_VAL);
    previous = expected;
  }
  return worst;
}

class Oracle : public ::testing::TestWithParam<std::string> {};

json index_entry(const std::string& file) {
  const json index = read("index.json");
  for (const json& entry : index["cases"]) {
    if (entry["file"] == file) return entry;
  }
  throw Error("no index entry for " + file);
}

TEST_P(Oracle, IsReproducedInDouble) {
  EXPECT_TRUE(worst_error<double>(read(GetParam())) <= index_entry(GetParam())["rel_tol_float64"].get<double>());
}

TEST_P(Oracle, IsReproducedInFloat) {
  const json tolerance = index_entry(GetParam())["rel_tol_float32"];
  if (tolerance.is_null()) GTEST_SKIP() << "the index gives no float32 tolerance";
  EXPECT_TRUE(worst_error<float>(read(GetParam())) <= tolerance.get<double>());
}

std::vector<std::string> files() {
  const json index = read("index.json");
  std::vector<std::string> names;
  for (const json& entry : index["cases"]) names.push_back(entry["file"]);
  return names;
}

INSTANTIATE_TEST_SUITE_P(PublicImplementations, Oracle, ::testing::ValuesIn(files()),
                         [](const auto& instance) { return std::filesystem::path(instance.param).stem().string(); });

}  // namespace
}  // namespace canzona::reference
