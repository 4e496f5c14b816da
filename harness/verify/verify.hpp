// Does every strategy compute what one device would? Bitwise, on every mesh, in every precision.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/executor/executor.hpp"

namespace canzona::harness {

struct VerifyCase {
  std::string optimizer;
  std::string strategy;
  Mesh mesh;
  DType precision = DType::fp32;
  BlockSplit split;

  std::string name() const;
};

/// What to verify: every combination of what is listed.
struct VerifyRequest {
  ModelConfig config;
  std::vector<std::string> optimizers;
  std::vector<std::string> strategies;
  std::vector<Mesh> meshes;
  std::vector<DType> precisions;
  std::vector<BlockSplit> splits{{}};
  DType gradient = DType::fp32;
  /// Options, training and bucket size; the fields above override its others. An optimizer's own verification options
  /// stand under the options given here, of which it takes those that it has.
  WorkloadRequest settings;
  int iterations = 3;
  std::uint64_t seed = 1;
  std::optional<std::int64_t> poisoned;  ///< an iteration in which a gradient is not finite
};

/// The meshes that `canzona verify` runs when none is asked for: dp, tp and both, uneven, and with fewer matrices than
/// ranks.
std::vector<Mesh> standard_meshes();

struct CaseResult {
  VerifyCase what;
  std::string failure;                ///< empty when the case passed
  std::int64_t skipped = 0;           ///< iterations whose update all ranks agreed to skip
  std::int64_t failed_refreshes = 0;  ///< on one device: bases or roots that were kept, as new ones were not found
};

/// Compares every element of every rank's model weights, and of every owner's master weights, bit by bit with the dense
/// step; the global norm and the number of iterations that were not skipped; the matrix-optimizer steps with (matrices
/// × such iterations × ranks that compute each); the bytes sent with their closed form. Empty when all agree, otherwise
/// the first difference.
template <class Scalar>
std::string compare(const reference::Executor<Scalar>& executor, const reference::DenseReference<Scalar>& dense,
                    const Workload& workload, const reference::Precision& precision, int iterations);

/// Runs all cases; cases run in parallel, each on one thread. `advance` is called after each. Stops early, returning
/// what finished, when `interrupted` says so. An exception inside a case is that case's failure.
std::vector<CaseResult> verify(const VerifyRequest& request, const std::function<void()>& advance,
                               const std::function<bool()>& interrupted);

/// How many cases `request` makes.
std::size_t count_cases(const VerifyRequest& request);

extern template std::string compare(const reference::Executor<float>&, const reference::DenseReference<float>&,
                                    const Workload&, const reference::Precision&, int);
extern template std::string compare(const reference::Executor<double>&, const reference::DenseReference<double>&,
                                    const Workload&, const reference::Precision&, int);

}  // namespace canzona::harness
