// Memory by purpose, as records hold it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "optimized/device/ledger.hpp"

namespace canzona::harness {

/// {purpose: {busiest, mean}, …, total: {…}} in bytes, of the ranks' ledgers; purposes that nobody has are left out.
nlohmann::ordered_json memory_record(const std::vector<optimized::Ledger>& ranks);

/// "12.34 GB: weights 4.00, gradients 8.00, …", the largest first.
std::string describe(const optimized::Ledger& ledger);

}  // namespace canzona::harness
