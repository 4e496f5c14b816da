#include "harness/cli/arguments.hpp"

#include <set>

#include "harness/experiment/paths.hpp"
#include "reference/core/error.hpp"
#include "reference/model/split.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona::harness {

namespace {

/// Each strategy's own.
constexpr const char* kDefaultBucketSize = "default";

/// " [default]" of a strategy's option, as it is registered.
std::string standard(const std::string& name) {
  for (const Strategy& strategy : Strategies::instance().all()) {
    for (const OptionDescription& option : strategy.options) {
      if (option.name == name) return " [" + option.standard + "]";
    }
  }
  return {};
}

/// Options that only some strategies have are checked even where the strategy asked for does not use them; one that no
/// strategy has is refused.
void check_strategy_options(const std::map<std::string, std::string>& options) {
  std::string names;
  std::set<std::string> known;
  for (const Strategy& strategy : Strategies::instance().all()) {
    std::map<std::string, std::string> own;
    for (const OptionDescription& option : strategy.options) {
      names += (names.empty() ? "" : ", ") + option.name;
      known.insert(option.name);
      if (const auto found = options.find(option.name); found != options.end()) own.insert(*found);
    }
    (void)Options(strategy.options, own, "strategy '" + strategy.name + "'");
  }
  for (const auto& [name, value] : options) {
    if (!known.contains(name)) throw InputError("", "--strategy-option", "'" + name + "'", names);
  }
}

}  // namespace

void add_common(CLI::App& command, CommonArguments& arguments) {
  command
      .add_option("--model", arguments.model,
                  "model of 'canzona list', or the path of a Hugging Face config.json (called after its file, or after "
                  "its folder if that is config.json)")
      ->type_name("NAME|PATH")
      ->capture_default_str();
  command.add_option("--dp", arguments.dp, "data-parallel ranks")->type_name("RANKS")->capture_default_str();
  command.add_option("--tp", arguments.tp, "tensor-parallel ranks")->type_name("RANKS")->capture_default_str();
  command.add_option("--strategy", arguments.strategy, "a strategy of 'canzona list', or all")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--optimizer", arguments.optimizer, "an optimizer of 'canzona list'")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--alpha", arguments.alpha,
                  "of canzona: 1 balances load alone, 0 communication alone" + standard("alpha"))
      ->type_name("[0,1]");
  command
      .add_option("--cost", arguments.cost, "of canzona: what is balanced: numel, flops, measured" + standard("cost"))
      ->type_name("NAME");
  command
      .add_option("--cost-file", arguments.cost_file,
                  "for --cost measured: TOML, a [[matrix]] with rows, cols and seconds for each whole shape")
      ->type_name("FILE");
  command
      .add_option("--capacity", arguments.capacity,
                  "of canzona: what one rank may host in a micro-group, the matrices gathered at once: N, N:elements, "
                  "N:flops" +
                      standard("capacity"))
      ->type_name("N[:UNIT]");
  command
      .add_option("--bucket-size", arguments.bucket_size,
                  "elements at which a gradient bucket closes; default: 40000000, or 1000000·dp if that is more, of "
                  "layerwise-lpt at least 0.9·dp·largest matrix")
      ->type_name("ELEMENTS|default");
  command.add_option("--gradient-dtype", arguments.gradient_dtype, "type in which gradients travel: fp32, bf16")
      ->type_name("TYPE")
      ->capture_default_str();
  command
      .add_option("--split-qkv", arguments.split_qkv,
                  "what of linear_qkv is a matrix of its own: none, qkv (Q, K and V) or per-head")
      ->type_name("WAY")
      ->capture_default_str();
  command.add_option("--split-fc1", arguments.split_fc1, "on: gate and up are matrices of their own")
      ->type_name("on|off")
      ->capture_default_str();
  command
      .add_option(
          "--refresh", arguments.refresh,
          "of optimizers with preconditioners: together, or staggered, the matrices of a rank in turns [together]")
      ->type_name("WAY");
  command
      .add_option("--strategy-option", arguments.strategy_options,
                  "any option of a strategy, see 'canzona list'; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--optimizer-option", arguments.optimizer_options,
                  "an option of the optimizer, see 'canzona list'; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command.add_option("--json", arguments.json, "write the result as JSON to FILE, or to standard output with -")
      ->type_name("FILE");
}

void add_options(const char* flag, const std::vector<std::string>& entries,
                 std::map<std::string, std::string>& options) {
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) throw InputError("", flag, "'" + entry + "'", "NAME=VALUE");
    options[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
}

void add_micro_batches(CLI::App& command, std::string& micro_batches) {
  command
      .add_option("--micro-batches", micro_batches,
                  "forward and backward passes that an iteration's samples are cut into")
      ->type_name("N")
      ->capture_default_str();
}

std::vector<std::string> strategies_of(const CommonArguments& arguments) {
  std::vector<std::string> names;
  if (arguments.strategy == "all") {
    for (const Strategy& strategy : Strategies::instance().all()) names.push_back(strategy.name);
    return names;
  }
  try {
    return {Strategies::instance().find(arguments.strategy).name};
  } catch (const InputError& error) {
    throw InputError(std::string(error.what()) + ", all");
  }
}

std::int64_t positive(const std::string& option, const std::string& text, std::int64_t most) {
  return parse_integer(option, text, 1, most);
}

WorkloadRequest settings_of(const CommonArguments& arguments) {
  WorkloadRequest request;
  add_options("--strategy-option", arguments.strategy_options, request.strategy_options);
  if (arguments.alpha) request.strategy_options["alpha"] = *arguments.alpha;
  if (arguments.cost) request.strategy_options["cost"] = *arguments.cost;
  if (arguments.capacity) request.strategy_options["capacity"] = *arguments.capacity;
  check_strategy_options(request.strategy_options);
  add_options("--optimizer-option", arguments.optimizer_options, request.optimizer_options);
  if (arguments.refresh) request.optimizer_options["refresh"] = *arguments.refresh;
  request.split = parse_split(arguments.split_qkv, arguments.split_fc1);
  if (arguments.bucket_size && *arguments.bucket_size != kDefaultBucketSize)
    request.bucket_size = positive("--bucket-size", *arguments.bucket_size, std::int64_t{1} << 50);
  if (arguments.cost_file) {
    if (request.strategy_options["cost"] != "measured") {
      throw InputError("", "--cost-file", "'" + *arguments.cost_file + "'", "only with --cost measured");
    }
    request.measured = read_cost_file(*arguments.cost_file);
  }
  return request;
}

std::vector<Point> points_of(const CommonArguments& arguments) {
  WorkloadRequest request = settings_of(arguments);
  request.config = find_model(arguments.model);
  request.mesh = make_mesh(positive("--dp", arguments.dp, kMostRanks), positive("--tp", arguments.tp, kMostRanks));
  request.optimizer = arguments.optimizer;
  const DType gradient = parse_gradient_dtype(arguments.gradient_dtype, "--gradient-dtype");
  std::vector<Point> points;
  for (const std::string& strategy : strategies_of(arguments)) {
    request.strategy = strategy;
    points.push_back({request, gradient});
  }
  return points;
}

}  // namespace canzona::harness
