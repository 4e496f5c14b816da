// canzona verify: proof that every strategy computes what one device would.
#include "harness/verify/verify.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/progress.hpp"
#include "harness/experiment/paths.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/provenance.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

struct VerifyArguments : CommonArguments {
  std::string precision = "all";
  std::string iterations = "3";
  std::string seed = "1";
};

/// Whether a model can be cut over so many tensor-parallel ranks.
bool fits(const ModelConfig& config, int tp) {
  try {
    build_model(config, tp);
    return true;
  } catch (const InputError&) {
    return tp == 1;  // then the model itself is at fault: let its own message come
  }
}

VerifyRequest request_of(const VerifyArguments& arguments) {
  VerifyRequest request;
  request.settings = settings_of(arguments);
  request.config = find_model(arguments.model);
  request.strategies = strategies_of(arguments);
  if (arguments.optimizer == "all") {
    for (const auto& optimizer : reference::Optimizers::instance().all()) request.optimizers.push_back(optimizer.name);
  } else {
    request.optimizers = {reference::Optimizers::instance().find(arguments.optimizer).name};
  }
  if (arguments.dp.empty() && arguments.tp.empty()) {
    for (const Mesh& mesh : standard_meshes()) {
      if (fits(request.config, mesh.tp)) request.meshes.push_back(mesh);
    }
  } else {
    const auto size = [](const char* option, const std::string& text) {
      return text.empty() ? 1 : positive(option, text, kMostRanks);
    };
    request.meshes = {make_mesh(size("--dp", arguments.dp), size("--tp", arguments.tp))};
  }
  if (arguments.precision == "all") {
    request.precisions = {DType::fp64, DType::fp32, DType::bf16};
  } else {
    request.precisions = {parse_dtype(arguments.precision, "--precision")};
  }
  request.gradient = parse_gradient_dtype(arguments.gradient_dtype, "--gradient-dtype");
  request.iterations = static_cast<int>(positive("--iterations", arguments.iterations, 1000));
  request.seed = static_cast<std::uint64_t>(parse_integer("--seed", arguments.seed, 0, INT64_MAX));
  return request;
}

ordered_json record_of(const std::vector<CaseResult>& results, const VerifyRequest& request) {
  ordered_json json;
  ordered_json cases = ordered_json::array();
  std::size_t failed = 0;
  for (const CaseResult& result : results) {
    const bool passed = result.failure.empty();
    failed += passed ? 0 : 1;
    ordered_json entry{
        {"optimizer", result.what.optimizer},
        {"strategy", result.what.strategy},
        {"mesh", {{"dp", result.what.mesh.dp}, {"tp", result.what.mesh.tp}, {"pp", result.what.mesh.pp}}},
        {"precision", name_of(result.what.precision)},
        {"passed", passed}};
    if (!passed) entry["failure"] = result.failure;
    cases.push_back(std::move(entry));
  }
  json["cases"] = results.size();
  json["failed"] = failed;
  json["model"] = request.config.name;
  json["iterations"] = request.iterations;
  json["seed"] = request.seed;
  json["gradient_dtype"] = name_of(request.gradient);
  json["provenance"] = provenance("reference");
  json["results"] = std::move(cases);
  return json;
}

void print(const std::vector<CaseResult>& results, std::size_t failed) {
  for (const CaseResult& result : results) {
    if (!result.failure.empty()) fmt::print("FAILED {}: {}\n", result.what.name(), result.failure);
  }
  fmt::print(
      "{} cases, {} failed: model weights on every rank, master weights on every owner, matrix updates counted and "
      "bytes sent, "
      "bit by bit against one device\n",
      results.size(), failed);
}

int run(const VerifyArguments& arguments) {
  const VerifyRequest request = request_of(arguments);
  const auto json = open_output(arguments.json, "--json");
  std::vector<CaseResult> results;
  {
    Progress progress("verify", count_cases(request));
    results = verify(
        request, [&] { progress.advance(); }, interrupted);
  }
  if (interrupted()) return kInterrupted;
  const ordered_json record = record_of(results, request);
  if (json) json->commit(text_of(record));
  if (arguments.json != "-") print(results, record["failed"]);
  return record["failed"] == 0 ? kSuccess : kCheckFailed;
}

}  // namespace

void add_verify(CLI::App& app, Runner& chosen) {
  CLI::App* command =
      app.add_subcommand("verify", "Run every strategy on virtual ranks and compare each bit with one device");
  const auto arguments = std::make_shared<VerifyArguments>();
  arguments->model = "qwen3-tiny";
  arguments->optimizer = "all";
  arguments->bucket_size = "32768";  // small models get several buckets
  add_common(*command, *arguments);
  command->get_option("--bucket-size")->capture_default_str();
  command->get_option("--dp")->description(
      "data-parallel ranks [with --tp absent too: eleven meshes of 1 to 16 ranks]");
  command->add_option("--precision", arguments->precision, "fp64, fp32, bf16, fp16, or all for the first three")
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_option("--iterations", arguments->iterations, "training iterations a case")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "of weights and gradients")->type_name("N")->capture_default_str();
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
