#include "harness/cli/arguments.hpp"

#include "harness/experiment/paths.hpp"
#include "reference/core/error.hpp"
#include "reference/strategies/strategy.hpp"

namespace canzona::harness {

void add_common(CLI::App& command, CommonArguments& arguments) {
  command
      .add_option("--model", arguments.model, "model of experiments/models, or the path of a Hugging Face config.json")
      ->capture_default_str();
  command.add_option("--dp", arguments.dp, "data-parallel ranks")->type_name("RANKS")->capture_default_str();
  command.add_option("--tp", arguments.tp, "tensor-parallel ranks")->type_name("RANKS")->capture_default_str();
  command.add_option("--strategy", arguments.strategy, "a strategy of 'canzona list', or all")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--optimizer", arguments.optimizer, "an optimizer of 'canzona list'")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--alpha", arguments.alpha, "of canzona: 1 balances load alone, 0 communication alone [1]")
      ->type_name("0…1");
  command.add_option("--cost", arguments.cost, "of canzona: the weight of a matrix: numel, flops, measured [flops]")
      ->type_name("NAME");
  command
      .add_option("--cost-file", arguments.cost_file,
                  "seconds by shape for --cost measured: TOML, [[matrix]] rows, cols, seconds")
      ->type_name("FILE");
  command
      .add_option("--capacity", arguments.capacity,
                  "of canzona: budget of a rank in a micro-group: N, N:elements, N:flops [419430400:elements]")
      ->type_name("N[:UNIT]");
  command
      .add_option("--bucket-size", arguments.bucket_size,
                  "elements at which a gradient bucket closes [max(40e6, 1e6·dp); layerwise-lpt at least "
                  "0.9·dp·largest matrix]")
      ->type_name("ELEMENTS");
  command.add_option("--gradient-dtype", arguments.gradient_dtype, "type in which gradients travel: fp32, bf16")
      ->type_name("TYPE")
      ->capture_default_str();
  command
      .add_option("--optimizer-option", arguments.optimizer_options,
                  "an option of the optimizer, see 'canzona list'; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command.add_option("--json", arguments.json, "write the result as JSON to FILE, or to standard output with -")
      ->type_name("FILE");
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
  for (const auto& [name, value] :
       {std::pair{"alpha", arguments.alpha}, {"cost", arguments.cost}, {"capacity", arguments.capacity}}) {
    if (!value.empty()) request.strategy_options[name] = value;
  }
  // Options of some strategies only are checked even where the strategy asked for does not use them.
  for (const Strategy& strategy : Strategies::instance().all()) {
    std::map<std::string, std::string> own;
    for (const OptionDescription& option : strategy.options) {
      if (const auto found = request.strategy_options.find(option.name); found != request.strategy_options.end())
        own.insert(*found);
    }
    (void)Options(strategy.options, own, "--" + (own.empty() ? strategy.name : own.begin()->first));
  }
  for (const std::string& option : arguments.optimizer_options) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InputError("", "--optimizer-option", "'" + option + "'", "NAME=VALUE");
    request.optimizer_options[option.substr(0, equals)] = option.substr(equals + 1);
  }
  if (!arguments.bucket_size.empty())
    request.bucket_size = positive("--bucket-size", arguments.bucket_size, std::int64_t{1} << 50);
  if (!arguments.cost_file.empty()) request.measured = read_cost_file(arguments.cost_file);
  return request;
}

std::vector<Point> points_of(const CommonArguments& arguments) {
  WorkloadRequest request = settings_of(arguments);
  request.config = find_model(arguments.model);
  request.mesh = make_mesh(positive("--dp", arguments.dp, kMostRanks), positive("--tp", arguments.tp, kMostRanks));
  request.optimizer = arguments.optimizer;
  const DType gradient = parse_dtype(arguments.gradient_dtype, "--gradient-dtype");
  if (gradient != DType::fp32 && gradient != DType::bf16) {
    throw InputError("", "--gradient-dtype", "'" + arguments.gradient_dtype + "'", "fp32, bf16");
  }
  std::vector<Point> points;
  for (const std::string& strategy : strategies_of(arguments)) {
    request.strategy = strategy;
    points.push_back({request, gradient});
  }
  return points;
}

}  // namespace canzona::harness
