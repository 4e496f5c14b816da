#include "harness/check/sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "reference/core/error.hpp"
#include "reference/core/random.hpp"

namespace canzona::harness {
namespace {

/// Shape, cut, routing, blocks.
using Kind = std::tuple<std::int64_t, std::int64_t, Sharding, Routing, std::vector<std::int64_t>>;

Kind kind_of(const Parameter& parameter) {
  std::vector<std::int64_t> rows;
  for (const Block& block : parameter.blocks) rows.push_back(block.row_count());
  return {parameter.shape.rows, parameter.shape.cols, parameter.sharding, parameter.routing, std::move(rows)};
}

}  // namespace

Sample sample_of(const Workload& workload, const Targets& targets, const CheckRequest& request, std::uint64_t seed) {
  constexpr std::uint64_t kSamples = 3;  // beside the objective's weights and gradients
  Sample sample;
  if (!request.of_each_kind) {
    sample.is_whole = true;
    for (std::size_t index = 0; index < workload.model.parameters.size(); ++index)
      sample.chosen[static_cast<int>(index)] = By::reference;
    return sample;
  }
  std::map<Kind, std::vector<int>> kinds;
  for (std::size_t index = 0; index < workload.model.parameters.size(); ++index)
    kinds[kind_of(workload.model.parameters[index])].push_back(static_cast<int>(index));
  for (auto& [kind, members] : kinds) {
    const auto lot = [&](int parameter) { return random_bits(random_key({seed, kSamples}), parameter); };
    std::sort(members.begin(), members.end(), [&](int a, int b) { return lot(a) < lot(b); });
    const auto wanted = static_cast<std::size_t>(*request.of_each_kind);
    members.resize(std::min(wanted, members.size()));
    for (const int parameter : members) {
      const double flops = targets.flops_of_cores(workload, parameter, By::reference);
      if (flops <= request.flops) {
        sample.chosen[parameter] = By::reference;
      } else if (targets.has_fp64_on_device(workload, parameter) &&
                 targets.flops_of_cores(workload, parameter, By::device) <= request.flops) {
        sample.chosen[parameter] = By::device;
      } else {
        sample.left[workload.model.parameters[parameter].name] =
            fmt::format("would take {:.1e} FLOPs, allowed: {:.1e}", flops, request.flops);
      }
    }
  }
  return sample;
}

std::string no_room(const Workload& workload, const Targets& targets, int parameter, optimized::Device& device,
                    std::int64_t free_bytes) {
  try {
    const std::int64_t wanted = targets.bytes_on_device(workload, parameter, device);
    if (wanted <= free_bytes) return {};
    return fmt::format("would take {:.3g} GB of the device, {:.3g} GB are free", static_cast<double>(wanted) / 1e9,
                       static_cast<double>(free_bytes) / 1e9);
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace canzona::harness
