// Optimizers against vectors that public implementations made (tests/data/oracles/README.md describes the format).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reference/core/dtype.hpp"

namespace canzona::harness {

struct OracleResult {
  std::string optimizer;
  DType precision = DType::fp64;
  std::vector<double> errors;  ///< by step: ‖p − p_ref‖_F ÷ the largest ‖p_ref‖ step so far
  double worst_error = 0;
};

/// Runs the steps of `file` in fp64 or fp32; without a precision, in the file's own. Throws InputError naming the file
/// and what is wrong in it; an option that the optimizer here lacks is an error.
OracleResult run_oracle(const std::filesystem::path& file, std::optional<DType> precision);

}  // namespace canzona::harness
