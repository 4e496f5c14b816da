#include "harness/verify/oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/core/error.hpp"
#include "reference/optimizers/inverse_root.hpp"
#include "reference/optimizers/muon.hpp"

namespace canzona::harness {
namespace {

using nlohmann::json;
using reference::OptimizerDescription;

/// What files state and implementations here always do: another value is refused.
const std::vector<std::pair<std::string, json>> kConventions{
    {"norm", "frobenius"}, {"transpose", "rows_greater"}, {"amsgrad", false}, {"maximize", false}};

/// Accessors that name the file in their complaints.
class VectorFile {
 public:
  explicit VectorFile(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code unknown;
    std::ifstream file(path);
    if (!file || !std::filesystem::is_regular_file(path, unknown))
      throw InputError("", "--oracle", "'" + name_ + "'", "a file that can be read");
    const auto shallow = [&](int depth, json::parse_event_t, json&) {
      constexpr int kDeepest = 8;
      if (depth > kDeepest) throw InputError(name_, "the nesting", "deeper", "at most 8 levels");
      return true;
    };
    try {
      root_ = json::parse(file, shallow);
    } catch (const json::exception& error) {
      throw InputError(name_ + ": no JSON: " + error.what());
    }
    if (!root_.is_object()) throw reject("it", root_, "an object");
    const json& shape = at(root_, "shape");
    if (!shape.is_array() || shape.size() != 2) throw reject("shape", shape, "two positive integers");
    constexpr std::int64_t kMost = 1 << 20;
    shape_ = {integer("shape", shape[0], 1, kMost), integer("shape", shape[1], 1, kMost)};
  }

  const std::string& name() const { return name_; }
  Shape shape() const { return shape_; }
  const json& root() const { return root_; }
  const json& options() const { return at(root_, "options"); }

  const json& at(const json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) throw reject(key, "missing", "a value");
    return object.at(key);
  }
  std::string text(const json& object, const char* key) const {
    const json& value = at(object, key);
    if (!value.is_string()) throw reject(key, value, "text");
    return value.get<std::string>();
  }
  double number(const json& object, const char* key, double low, double high) const {
    const json& value = at(object, key);
    if (!value.is_number() || !(value >= low) || !(value <= high))
      throw reject(key, value, fmt::format("a number from {} to {}", low, high));
    return value.get<double>();
  }
  /// An integer, which may be written 3.0.
  std::int64_t integer(const std::string& key, const json& value, std::int64_t low, std::int64_t high) const {
    const bool fits = value.is_number() && value >= low && value <= high;
    const double number = fits ? value.get<double>() : 0;
    if (!fits || number != std::floor(number))
      throw reject(key, value, fmt::format("an integer from {} to {}", low, high));
    return static_cast<std::int64_t>(number);
  }
  const json& steps() const {
    const json& steps = at(root_, "steps");
    if (!steps.is_array() || steps.empty()) throw reject("steps", steps, "a list of at least one step");
    return steps;
  }

  /// `numbers` as a matrix of `shape`, row-major.
  template <class Scalar>
  Matrix<Scalar> matrix(const json& numbers, Shape shape, const char* key) const {
    if (!numbers.is_array()) throw reject(key, numbers, fmt::format("a list of {} numbers", shape.numel()));
    if (static_cast<std::int64_t>(numbers.size()) != shape.numel())
      throw reject(key, fmt::format("{} numbers", numbers.size()), fmt::format("{} of them", shape.numel()));
    Matrix<Scalar> matrix(shape.rows, shape.cols);
    for (std::int64_t i = 0; i < matrix.size(); ++i) {
      const json& number = numbers[static_cast<std::size_t>(i)];
      if (!number.is_number()) throw reject(key, number, "numbers");
      matrix.data()[i] = static_cast<Scalar>(number.get<double>());
    }
    return matrix;
  }

  /// Of long values, what they are.
  InputError reject(const std::string& key, const json& value, const std::string& allowed) const {
    constexpr std::size_t kLongest = 60;
    const bool is_list = value.is_array() || value.is_object();
    std::string text = is_list             ? fmt::format("{} of {}", value.type_name(), value.size())
                       : value.is_string() ? value.get<std::string>()
                                           : value.dump();
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
    return {name_, "'" + key + "'", text, allowed};
  }

 private:
  std::string name_;
  json root_;
  Shape shape_;
};

std::string coefficients_of(const VectorFile& file, const json& list) {
  std::string text;
  for (const json& triple : list) {
    if (!triple.is_array() || triple.size() != 3) throw file.reject("ns_coefficients", list, "triples");
    text += fmt::format("{},{},{};", triple[0].dump(), triple[1].dump(), triple[2].dump());
  }
  return text;
}

std::string option_text(const json& value) {
  // 3.0 is an integer here, since some writers know no other numbers.
  if (value.is_number_float() && std::abs(value.get<double>()) < 1e15 &&
      value.get<double>() == std::floor(value.get<double>()))
    return std::to_string(static_cast<std::int64_t>(value.get<double>()));
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The file's options under our names. Those that no optimizer has are left in, for Options to refuse.
std::map<std::string, std::string> options_of(const VectorFile& file) {
  std::map<std::string, std::string> options;
  for (const auto& [name, value] : file.options().items()) {
    const auto convention = std::find_if(kConventions.begin(), kConventions.end(),
                                         [&name = name](const auto& entry) { return entry.first == name; });
    if (convention != kConventions.end()) {
      if (value != convention->second) throw file.reject(name, value, convention->second.dump());
    } else if (name == "betas") {
      if (!value.is_array() || value.size() != 2) throw file.reject(name, value, "two numbers");
      options["beta1"] = value[0].dump();
      options["beta2"] = value[1].dump();
    } else if (name == "ns_coefficients") {
      options["coefficients"] = coefficients_of(file, value);
    } else if (name != "scale_factor" && name != "abs_epsilon") {
      options[name] = option_text(value);
    }
  }
  if (file.options().contains("abs_epsilon")) {
    // coupled_higher_order takes its own epsilon and leaves the optimizer's alone; no other method has one.
    if (options["root_method"] != "coupled_higher_order")
      throw file.reject("abs_epsilon", file.options()["abs_epsilon"], "only with root_method coupled_higher_order");
    options["epsilon"] = option_text(file.options()["abs_epsilon"]);
  }
  if (file.options().contains("ns_coefficients")) {
    const std::string count = std::to_string(file.options()["ns_coefficients"].size());
    if (options.try_emplace("ns_steps", count).first->second != count)
      throw file.reject("ns_steps", options["ns_steps"], "as many as 'ns_coefficients', " + count);
  }
  return options;
}

/// Steps compared one after another.
class Comparison {
 public:
  explicit Comparison(Matrix<double> initial) : previous_(std::move(initial)) {}

  void add(const Matrix<double>& parameter, const Matrix<double>& expected) {
    largest_step_ = std::max(largest_step_, (expected - previous_).norm());
    const double difference = (parameter - expected).norm();
    // Where nothing has moved yet, the parameter must not have moved either.
    const double error = difference == 0 ? 0 : largest_step_ > 0 ? difference / largest_step_ : HUGE_VAL;
    errors_.push_back(error);
    if (!(error <= worst_)) worst_ = error;  // NaN is the worst
    previous_ = expected;
  }
  OracleResult result(const std::string& optimizer, DType precision) && {
    return {optimizer, precision, std::move(errors_), worst_};
  }

 private:
  Matrix<double> previous_;
  double largest_step_ = 0;
  double worst_ = 0;
  std::vector<double> errors_;
};

/// `scale_factor` must be what `scale` gives for the shape.
void check_scale(const VectorFile& file, const Options& options) {
  if (!file.options().contains("scale_factor")) return;
  const double own = reference::muon_scale(options.text("scale"), file.shape());
  const double given = file.number(file.options(), "scale_factor", -1e30, 1e30);
  if (!(std::abs(given - own) <= 1e-6 * own))
    throw file.reject("scale_factor", given, fmt::format("{}, as 'scale' says", own));
}

/// Puts what the file knows of the state after a step in its place.
template <class Scalar>
void inject(const VectorFile& file, const json& given, reference::State<Scalar>& state) {
  if (!given.is_object()) throw file.reject("state", given, "an object");
  for (const auto& [name, numbers] : given.items()) {
    if (numbers.is_array() && numbers.empty()) continue;  // a side that is not preconditioned
    const auto tensor = state.tensors.find(name);
    if (tensor == state.tensors.end()) {
      std::string names;
      for (const auto& [known, value] : state.tensors) names += (names.empty() ? "" : ", ") + known;
      throw file.reject("state", name, names);
    }
    tensor->second = file.matrix<Scalar>(numbers, shape_of(tensor->second), name.c_str());
  }
}

template <class Scalar>
OracleResult run_optimizer(const VectorFile& file, const OptimizerDescription& description, DType precision) {
  const Options options(description.options, options_of(file), file.name());
  check_scale(file, options);
  const auto optimizer = description.make<Scalar>(options, precision);
  Matrix<Scalar> parameter = file.matrix<Scalar>(file.at(file.root(), "initial"), file.shape(), "initial");
  reference::State<Scalar> state = optimizer->init(file.shape());
  Comparison comparison(parameter.template cast<double>());
  for (const json& step : file.steps()) {
    const auto gradient = file.matrix<Scalar>(file.at(step, "gradient"), file.shape(), "gradient");
    const Matrix<Scalar> update = optimizer->step(gradient, state);
    optimizer->apply(state.steps, update.data(), parameter.data(), update.size());
    comparison.add(parameter.template cast<double>(),
                   file.matrix<double>(file.at(step, "parameter"), file.shape(), "parameter"));
    if (step.contains("state")) inject(file, step["state"], state);
  }
  return std::move(comparison).result(description.name, precision);
}

template <class Scalar>
OracleResult run_inverse_root(const VectorFile& file, DType precision) {
  const json& options = file.options();
  reference::RootMethod method;
  double root = 0, epsilon = 0;
  for (const auto& [name, value] : options.items()) {
    if (name == "root") {
      root = file.number(options, "root", 1e-3, 1e3);
    } else if (name == "method") {
      method.kind = reference::root_method(file.text(options, "method"));
    } else if (name == "epsilon") {
      epsilon = file.number(options, "epsilon", 0, 1e6);
    } else if (name == "rel_epsilon") {
      method.rel_epsilon = file.number(options, "rel_epsilon", 0, 1);
    } else if (name == "abs_epsilon") {
      epsilon = file.number(options, "abs_epsilon", 0, 1e6);
    } else if (name == "tolerance") {
      method.tolerance = file.number(options, "tolerance", 0, 1);
    } else if (name == "max_iterations") {
      method.max_iterations = file.integer(name, value, 1, 1'000'000);
    } else if (name == "order") {
      method.order = file.integer(name, value, 2, 20);
    } else {
      throw InputError(file.name(), "option", "'" + name + "'",
                       "root, method, epsilon, rel_epsilon, abs_epsilon, tolerance, max_iterations, order");
    }
  }
  if (root == 0) throw file.reject("root", "missing", "a number above 0");
  if (file.shape().rows != file.shape().cols) throw file.reject("shape", file.at(file.root(), "shape"), "a square");
  const auto A = file.matrix<Scalar>(file.at(file.root(), "initial"), file.shape(), "initial");
  Comparison comparison(Matrix<double>::Zero(A.rows(), A.cols()));
  for (const json& step : file.steps()) {
    const auto result = reference::inverse_root(A, root, epsilon, method);
    const auto expected = file.matrix<double>(file.at(step, "parameter"), file.shape(), "parameter");
    const Matrix<double> nothing = Matrix<double>::Constant(A.rows(), A.cols(), std::nan(""));
    comparison.add(result ? Matrix<double>(result->template cast<double>()) : nothing, expected);
  }
  return std::move(comparison).result("inverse_root", precision);
}

}  // namespace

OracleResult run_oracle(const std::filesystem::path& path, std::optional<DType> precision) {
  const VectorFile file(path);
  const std::string own = file.text(file.root(), "dtype");
  if (own != "float64" && own != "float32") throw file.reject("dtype", own, "float64, float32");
  const DType type = precision.value_or(own == "float64" ? DType::fp64 : DType::fp32);
  const std::string optimizer = file.text(file.root(), "optimizer");
  if (optimizer == "inverse_root")
    return type == DType::fp64 ? run_inverse_root<double>(file, type) : run_inverse_root<float>(file, type);
  const auto& all = reference::Optimizers::instance().all();
  if (std::none_of(all.begin(), all.end(), [&](const auto& own) { return own.name == optimizer; })) {
    std::string names = "inverse_root";
    for (const auto& own : all) names += ", " + own.name;
    throw file.reject("optimizer", optimizer, names);
  }
  const OptimizerDescription& description = reference::Optimizers::instance().find(optimizer);
  return type == DType::fp64 ? run_optimizer<double>(file, description, type)
                             : run_optimizer<float>(file, description, type);
}

}  // namespace canzona::harness
