#include "harness/report/step_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace canzona::harness {
namespace {

using nlohmann::ordered_json;

std::string milli(const ordered_json& seconds) { return fmt::format("{:.2f}", seconds.get<double>() * 1e3); }
std::string times(const ordered_json& ratio) { return fmt::format("{:.2f}×", ratio.get<double>()); }

}  // namespace

Table step_table(const std::vector<ordered_json>& records) {
  const std::string kind = "simulated";
  Table table;
  table.columns = {{"model", ""},
                   {"cluster", ""},
                   {"mesh", ""},
                   {"strategy", ""},
                   {"optimizer", ""},
                   {"forward+backward ms", kind},
                   {"optimizer step ms", kind},
                   {"compute", kind},
                   {"communication", kind},
                   {"waiting", kind},
                   {"iteration ms", kind},
                   {"step over synchronous", kind},
                   {"iteration over synchronous", kind},
                   {"step over layerwise", kind},
                   {"iteration over layerwise", kind}};
  for (const ordered_json& record : records) {
    table.rows.push_back(
        {record["model"], record["cluster"],
         fmt::format("dp {} × tp {}", record["mesh"]["dp"].get<int>(), record["mesh"]["tp"].get<int>()),
         record["strategy"], record["optimizer"], milli(record["seconds"]["forward_backward"]),
         milli(record["seconds"]["optimizer_step"]), milli(record["parts"]["compute"]),
         milli(record["parts"]["exposed_communication"]), milli(record["parts"]["waiting"]),
         milli(record["seconds"]["iteration"]), times(record["speedup"]["synchronous"]["optimizer_step"]),
         times(record["speedup"]["synchronous"]["iteration"]), times(record["speedup"]["layerwise"]["optimizer_step"]),
         times(record["speedup"]["layerwise"]["iteration"])});
  }
  return table;
}

}  // namespace canzona::harness
