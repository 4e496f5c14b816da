#include "harness/record/memory_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace canzona::harness {

using nlohmann::ordered_json;
using optimized::kPurposes;
using optimized::Ledger;
using optimized::Purpose;

nlohmann::ordered_json memory_record(const std::vector<Ledger>& ranks) {
  ordered_json record;
  const auto add = [&](std::string_view name, const auto& bytes_of) {
    std::int64_t sum = 0, most = 0;
    for (const Ledger& own : ranks) {
      sum += bytes_of(own);
      most = std::max(most, bytes_of(own));
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(ranks.size());
    if (most > 0) record[std::string(name)] = {{"busiest", most}, {"mean", mean}};
  };
  for (const Purpose purpose : kPurposes) add(name_of(purpose), [&](const Ledger& own) { return own.of(purpose); });
  add("total", [](const Ledger& own) { return own.total(); });
  return record;
}

std::string describe(const Ledger& ledger) {
  const auto giga = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  std::vector<Purpose> purposes(kPurposes.begin(), kPurposes.end());
  std::stable_sort(purposes.begin(), purposes.end(), [&](Purpose a, Purpose b) { return ledger.of(a) > ledger.of(b); });
  std::string parts;
  for (const Purpose purpose : purposes) {
    if (ledger.of(purpose) == 0) continue;
    std::string name(name_of(purpose));
    std::replace(name.begin(), name.end(), '_', ' ');
    parts += fmt::format("{}{} {:.3g}", parts.empty() ? "" : ", ", name, giga(ledger.of(purpose)));
  }
  return fmt::format("{:.3g} GB: {}", giga(ledger.total()), parts);
}

}  // namespace canzona::harness
