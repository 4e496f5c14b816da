// canzona verify: proof that every strategy computes what one device would.
#include "harness/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/progress.hpp"
#include "harness/experiment/paths.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/provenance.hpp"
#include "harness/verify/oracle.hpp"
#include "reference/core/error.hpp"
#include "reference/model/split.hpp"

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

struct VerifyArguments : CommonArguments {
  std::string precision = "all";
  std::string iterations = "3";
  std::string seed = "1";
  std::string batch = "2";
  std::string micro_batches;
  std::string clip_norm = "1";
  std::string poison;
  std::string oracle;
  std::string tolerance;
};

/// none with off and per-head with on, where nothing was asked for; otherwise what was.
std::vector<BlockSplit> splits_of(const VerifyArguments& arguments) {
  if (arguments.split_qkv == "all" && arguments.split_fc1 == "all")
    return {parse_split("none", "off"), parse_split("per-head", "on")};
  return {parse_split(arguments.split_qkv == "all" ? "none" : arguments.split_qkv,
                      arguments.split_fc1 == "all" ? "off" : arguments.split_fc1)};
}

/// Where several optimizers run, each takes those options that it has; a name that none has is refused.
void require_known(const std::map<std::string, std::string>& options, const std::vector<std::string>& optimizers) {
  for (const auto& [name, value] : options) {
    const bool known = std::any_of(optimizers.begin(), optimizers.end(), [&](const std::string& optimizer) {
      const auto& own = reference::Optimizers::instance().find(optimizer).options;
      return std::any_of(own.begin(), own.end(), [&](const OptionDescription& option) { return option.name == name; });
    });
    if (!known)
      throw InputError("", "--optimizer-option", "'" + name + "'",
                       "an option that 'canzona list' shows of an optimizer");
  }
}

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
  request.splits = splits_of(arguments);
  VerifyArguments common = arguments;
  common.split_qkv = "none";
  common.split_fc1 = "off";
  request.settings = settings_of(common);
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
  require_known(request.settings.optimizer_options, request.optimizers);
  constexpr std::int64_t kMostSamples = 4096;
  const int batch = static_cast<int>(positive("--batch", arguments.batch, kMostSamples));
  const std::string micro_batches = !arguments.micro_batches.empty() ? arguments.micro_batches
                                    : batch % 2 == 0                 ? "2"
                                                                     : "1";
  request.settings.training = {
      .batch = batch,
      .micro_batches = static_cast<int>(positive("--micro-batches", micro_batches, kMostSamples)),
      .clip_norm = parse_number("--clip-norm", arguments.clip_norm, 0, 1e30)};
  if (!arguments.poison.empty())
    request.poisoned = parse_integer("--poison", arguments.poison, 0, request.iterations - 1);
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
        {"split", name_of(result.what.split)},
        {"skipped", result.skipped},
        {"failed_refreshes", result.failed_refreshes},
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
  json["training"] = {{"batch", request.settings.training.batch},
                      {"micro_batches", request.settings.training.micro_batches},
                      {"clip_norm", request.settings.training.clip_norm}};
  json["provenance"] = provenance("reference");
  json["results"] = std::move(cases);
  return json;
}

void print(const std::vector<CaseResult>& results, std::size_t failed) {
  for (const CaseResult& result : results) {
    if (!result.failure.empty()) fmt::print("FAILED {}: {}\n", result.what.name(), result.failure);
  }
  fmt::print(
      "{} cases, {} failed: model weights on every rank, master weights on every owner, global norm, matrix updates "
      "counted and bytes sent, bit by bit against one device\n",
      results.size(), failed);
  const auto skipped = std::max_element(results.begin(), results.end(),
                                        [](const CaseResult& a, const CaseResult& b) { return a.skipped < b.skipped; });
  if (skipped != results.end() && skipped->skipped > 0)
    fmt::print("{} iteration{} skipped by all ranks: a gradient was not finite\n", skipped->skipped,
               skipped->skipped == 1 ? "" : "s");
}

/// JSON has no number for what is not finite: null.
int run_against_oracle(const VerifyArguments& arguments) {
  std::optional<DType> precision;
  if (arguments.precision != "all") {
    precision = parse_dtype(arguments.precision, "--precision");
    if (precision != DType::fp64 && precision != DType::fp32)
      throw InputError("", "--precision", "'" + arguments.precision + "'", "fp64, fp32 with --oracle");
  }
  std::optional<double> tolerance;
  if (!arguments.tolerance.empty()) tolerance = parse_number("--tolerance", arguments.tolerance, 0, 1e30);
  const OracleResult result = run_oracle(arguments.oracle, precision);
  const bool passed = !tolerance || result.worst_error <= *tolerance;
  const ordered_json json{{"file", arguments.oracle},
                          {"optimizer", result.optimizer},
                          {"precision", name_of(result.precision)},
                          {"worst_error", result.worst_error},
                          {"errors", result.errors}};
  if (const auto file = open_output(arguments.json, "--json")) file->commit(text_of(json));
  if (arguments.json != "-") {
    fmt::print("{}: {} in {}, worst error {:.3g} of an update in {} steps{}\n", arguments.oracle, result.optimizer,
               name_of(result.precision), result.worst_error, result.errors.size(),
               !tolerance ? "; no --tolerance: held against none"
               : passed   ? ""
                          : fmt::format(", above {}", *tolerance));
  }
  return passed ? kSuccess : kCheckFailed;
}

int run(const VerifyArguments& arguments) {
  if (!arguments.oracle.empty()) return run_against_oracle(arguments);
  if (!arguments.tolerance.empty())
    throw InputError("", "--tolerance", "'" + arguments.tolerance + "'", "only with --oracle");
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
  arguments->split_qkv = "all";
  arguments->split_fc1 = "all";
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
  command->add_option("--batch", arguments->batch, "samples per data-parallel rank and iteration")
      ->type_name("N")
      ->capture_default_str();
  add_micro_batches(*command, arguments->micro_batches);
  command->get_option("--micro-batches")
      ->description("forward and backward passes that an iteration's samples are cut into [2, or 1 for an odd batch]");
  command->get_option("--split-qkv")
      ->description(
          "what of linear_qkv is a matrix of its own: none, qkv or per-head [all with --split-fc1 all: none with "
          "off, per-head with on]");
  command
      ->add_option("--clip-norm", arguments->clip_norm, "largest global norm of the averaged gradient; 0: not clipped")
      ->type_name("NORM")
      ->capture_default_str();
  command
      ->add_option("--poison", arguments->poison,
                   "an iteration, from 0, in which one gradient is not finite: all ranks must skip it")
      ->type_name("ITERATION");
  command
      ->add_option(
          "--oracle", arguments->oracle,
          "instead of all this: run one optimizer on a file of vectors that a public implementation made, in the "
          "file's own precision unless --precision says fp64 or fp32")
      ->type_name("FILE");
  command
      ->add_option("--tolerance", arguments->tolerance,
                   "with --oracle: the worst error allowed; without it any error passes")
      ->type_name("ERROR");
  command->add_option("--seed", arguments->seed, "of weights and gradients")->type_name("N")->capture_default_str();
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
