#include "harness/simulate/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace canzona::harness {

nlohmann::ordered_json trace_of(const Timeline& timeline, const Plan& plan) {
  using nlohmann::ordered_json;
  const std::size_t last = timeline.steps.front().size() - 1;
  Nanoseconds origin = INT64_MAX;
  for (const auto& unit : timeline.steps) {
    for (const Interval& interval : unit[last]) origin = std::min(origin, interval.begin);
  }
  ordered_json events = ordered_json::array();
  const auto name = [&](const char* what, std::size_t process, int thread, const std::string& text) {
    events.push_back({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", text}}}});
  };
  for (std::size_t unit = 0; unit < timeline.classes.size(); ++unit) {
    const RankClass& own = timeline.classes[unit];
    const Coordinate at = plan.mesh.coordinate(own.representative);
    name("process_name", unit, 0, fmt::format("dp {} tp {} ({} ranks alike)", at.dp, at.tp, own.count));
    for (int stream = 0; stream < kStreams; ++stream)
      name("thread_name", unit, stream, std::string(name_of(static_cast<Stream>(stream))));
    const auto& steps = timeline.schedules[unit].steps;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Interval& interval = timeline.steps[unit][last][index];
      events.push_back({{"name", describe(steps[index].action)},
                        {"ph", "X"},
                        {"pid", unit},
                        {"tid", static_cast<int>(steps[index].stream)},
                        {"ts", static_cast<double>(interval.begin - origin) / 1e3},
                        {"dur", static_cast<double>(interval.end - interval.begin) / 1e3}});
    }
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace canzona::harness
