// canzona calibrate: a cluster file of this machine.
#include "harness/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "harness/cli/arguments.hpp"
#include "harness/cli/command.hpp"
#include "harness/cli/launch.hpp"
#include "harness/cli/progress.hpp"
#include "harness/record/output_file.hpp"
#include "harness/record/provenance.hpp"
#include "harness/run/identity.hpp"
#include "optimized/host/blas.hpp"
#include "reference/core/error.hpp"

namespace canzona::harness {
namespace {

struct CalibrateArguments : CommonArguments {
  LaunchArguments launch;
  std::string precision = "fp32";
  std::string rounds = "7";
  std::string output;
};

int run(CalibrateArguments arguments) {
  std::optional<CalibrationRequest> request;
  std::optional<Workload> workload;
  std::optional<Progress> progress;
  std::unique_ptr<OutputFile> output;
  Cluster cluster;
  std::string gpu_name;
  const auto prepare = [&](int ranks, bool writes) {
    if (backend_of(arguments.launch).backend->kind == optimized::kEmulated)
      throw InputError("an emulated device tells no time: there is nothing to calibrate");
    settle_mesh(arguments, ranks);
    arguments.strategy = "canzona";
    const Point point = points_of(arguments).front();
    const reference::Precision precision = precision_of(arguments.precision, point.gradient);
    request = {point, tokens_of(arguments.launch.tokens, arguments.launch.sequence), precision.wire.parameter,
               positive("--rounds", arguments.rounds, 1000)};
    workload = make_workload(request->point.request);
    if (writes) {
      output = open_output(arguments.output, "--output");
      progress.emplace("calibrate", count_figures(*request, *workload));
    }
    return Launch{workload->mesh,
                  identity_of({.points = {request->point},
                               .engine = {.tokens = request->tokens,
                                          .precision = precision_of(arguments.precision, request->point.gradient)},
                               .backend = {}})};
  };
  const auto body = [&](optimized::Rank& rank) {
    if (rank.index == 0) gpu_name = rank.device.name();
    auto& calibration = rank.make<Calibration>(rank, *request, *workload);
    for (std::int64_t round = 0; round < request->rounds; ++round)
      calibration.measure_round([&] { progress->advance(); });
    Cluster own = calibration.cluster();
    if (rank.index == 0) cluster = std::move(own);
  };
  return launch(arguments.launch, prepare, body, [&] {
    progress.reset();
    cluster.gpu.name = gpu_name.empty() ? machine_name() : gpu_name;
    const std::string source =
        fmt::format("measured: canzona calibrate, mean of the middle half of {} rounds on {} ranks, {}, {}",
                    request->rounds, cluster.gpus, optimized::blas_name(), revision_name());
    const std::string text = cluster_file(cluster, source);
    if (output) output->commit(text);
    if (!output) fmt::print("{}", text);
    return static_cast<int>(kSuccess);
  });
}

}  // namespace

void add_calibrate(CLI::App& app, Runner& chosen) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Measure this machine for 'canzona simulate' and 'canzona run --predict', and write a cluster file");
  const auto arguments = std::make_shared<CalibrateArguments>();
  arguments->model = "qwen3-tiny";
  arguments->optimizer = "muon";
  arguments->bucket_size = "1000000";
  add_common(*command, *arguments);
  add_launch(*command, arguments->launch);
  command->remove_option(command->get_option("--strategy"));
  command->remove_option(command->get_option("--json"));
  command->get_option("--bucket-size")->capture_default_str();
  command
      ->add_option("--precision", arguments->precision,
                   "of weights, activations and what an optimizer computes in two bytes: fp32, bf16 or fp16")
      ->type_name("DTYPE")
      ->capture_default_str();
  command
      ->add_option("--rounds", arguments->rounds,
                   "how often each figure is measured; the mean of the middle half counts")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--output", arguments->output, "the cluster file to write [standard output]")->type_name("FILE");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace canzona::harness
