// Which parameters of a model are held against one device, where all of them would take too long.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "harness/check/target.hpp"

namespace canzona::harness {

struct CheckRequest {
  std::optional<std::int64_t> of_each_kind;  ///< so many parameters; none: all of the model
  double flops = 1e13;                       ///< that the cores may do for the target of one parameter in a sample
};

struct Sample {
  bool is_whole = false;                    ///< it is all of the model
  std::map<int, By> chosen;                 ///< by parameter
  std::map<std::string, std::string> left;  ///< names of those that were drawn but take too long, with the reason
};

/// Draws by `seed` from each kind of parameters: those of one shape, cut, routed and split alike. Where all are asked
/// for, the reference computes them.
Sample sample_of(const Workload& workload, const Targets& targets, const CheckRequest& request, std::uint64_t seed);

/// Why a device with so many free bytes cannot compute a parameter's target; empty where it can.
std::string no_room(const Workload& workload, const Targets& targets, int parameter, optimized::Device& device,
                    std::int64_t free_bytes);

}  // namespace canzona::harness
