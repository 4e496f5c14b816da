// The record of how a plan loads its ranks.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "harness/experiment/experiment.hpp"

namespace canzona::harness {

/// Plans the point and counts its loads. Kind "computed": exact counts from the plan, no machine and no model of time.
/// Keys: provenance, kind, model, parameters, mesh, strategy, optimizer, options, gradient_dtype, buckets,
/// micro_groups, balance {dp, gpu, gpu_bound}, flops {total, largest_matrix, share, busiest_gpu}, bytes_sent
/// {collective: {busiest, mean}}, memory {purpose: {busiest, mean}}, loads {dp, gpu} in FLOPs, shard_elements by DP
/// rank.
nlohmann::ordered_json load_record(const Point& point);

/// The same for a workload that is already there.
nlohmann::ordered_json load_record(const Point& point, const Workload& workload);

}  // namespace canzona::harness
