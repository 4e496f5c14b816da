#include "reference/plan/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

using nlohmann::ordered_json;
constexpr int kFormat = 1;

constexpr std::array<std::pair<GradientReduction, const char*>, 3> kReductions{{
    {GradientReduction::all_reduce, "all_reduce"},
    {GradientReduction::reduce_scatter, "reduce_scatter"},
    {GradientReduction::padded_reduce_scatter, "padded_reduce_scatter"},
}};
constexpr std::array<std::pair<ParameterGather, const char*>, 4> kGathers{{
    {ParameterGather::none, "none"},
    {ParameterGather::after_step, "after_step"},
    {ParameterGather::overlapped, "overlapped"},
    {ParameterGather::padded_overlapped, "padded_overlapped"},
}};
constexpr std::array<std::pair<MatrixUpdate, const char*>, 2> kUpdates{{
    {MatrixUpdate::redundant, "redundant"},
    {MatrixUpdate::hosted, "hosted"},
}};

template <class Names, class Value>
const char* word(const Names& names, Value value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  throw Error("a value without a name");
}

/// Reads the keys of one object; each complaint names the origin, and a key that nobody asked for is one.
class Reader {
 public:
  Reader(const ordered_json& json, std::string origin) : json_(json), origin_(std::move(origin)) {
    if (!json.is_object()) throw InputError(origin_, "the value", json.dump(), "an object");
  }

  template <class Value>
  Value get(const char* key) {
    known_.insert(key);
    if (!json_.contains(key)) throw InputError(origin_, fmt::format("'{}'", key), "missing", "a value");
    try {
      return json_.at(key).get<Value>();
    } catch (const ordered_json::exception&) {
      throw InputError(origin_, fmt::format("'{}'", key), json_.at(key).dump(),
                       "a value of the type that plans are written with");
    }
  }

  template <class Names>
  auto one_of(const char* key, const Names& names) {
    const auto text = get<std::string>(key);
    std::string allowed;
    for (const auto& [value, name] : names) {
      if (text == name) return value;
      allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    throw InputError(origin_, fmt::format("'{}'", key), "'" + text + "'", allowed);
  }

  void finish() const {
    for (const auto& [key, value] : json_.items()) {
      if (!known_.contains(key))
        throw InputError(origin_, fmt::format("'{}'", key), "unknown", fmt::format("{}", fmt::join(known_, ", ")));
    }
  }

 private:
  const ordered_json& json_;
  std::string origin_;
  std::set<std::string> known_;
};

}  // namespace

ordered_json to_json(const Plan& plan) {
  ordered_json json;
  json["format"] = kFormat;
  json["strategy"] = plan.strategy;
  json["options"] = plan.options;
  json["mesh"] = {{"dp", plan.mesh.dp}, {"tp", plan.mesh.tp}, {"pp", plan.mesh.pp}};
  json["gradient_reduction"] = word(kReductions, plan.gradient_reduction);
  json["parameter_gather"] = word(kGathers, plan.parameter_gather);
  json["matrix_update"] = word(kUpdates, plan.matrix_update);
  json["pipelined"] = plan.pipelined;
  json["buckets"] = ordered_json::array();
  for (const auto& segments : plan.buckets) {
    ordered_json bucket = ordered_json::array();
    for (const Segment& segment : segments)
      bucket.push_back({segment.elements.begin, segment.elements.end, segment.owner});
    json["buckets"].push_back(bucket);
  }
  json["micro_groups"] = ordered_json::array();
  for (const auto& groups : plan.micro_groups) {
    ordered_json rank = ordered_json::array();
    for (const MicroGroup& group : groups) {
      ordered_json members = ordered_json::array();
      for (const HostedMatrix& member : group.members) members.push_back({member.parameter, member.host});
      rank.push_back(members);
    }
    json["micro_groups"].push_back(rank);
  }
  return json;
}

Plan plan_from_json(const ordered_json& json, std::string_view origin) {
  Reader reader(json, std::string(origin));
  if (const int format = reader.get<int>("format"); format != kFormat) {
    throw InputError(origin, "'format'", std::to_string(format), std::to_string(kFormat));
  }
  Plan plan;
  plan.strategy = reader.get<std::string>("strategy");
  plan.options = reader.get<std::map<std::string, std::string>>("options");
  const auto mesh_json = reader.get<ordered_json>("mesh");
  Reader mesh(mesh_json, std::string(origin) + ": mesh");
  plan.mesh = make_mesh(mesh.get<std::int64_t>("dp"), mesh.get<std::int64_t>("tp"), mesh.get<std::int64_t>("pp"));
  mesh.finish();
  plan.gradient_reduction = reader.one_of("gradient_reduction", kReductions);
  plan.parameter_gather = reader.one_of("parameter_gather", kGathers);
  plan.matrix_update = reader.one_of("matrix_update", kUpdates);
  plan.pipelined = reader.get<bool>("pipelined");
  const auto row = [&](const ordered_json& json_row, const char* key, std::size_t size) {
    const auto is_integer = [](const ordered_json& value) { return value.is_number_integer() && value <= INT64_MAX; };
    if (!json_row.is_array() || json_row.size() != size || !std::all_of(json_row.begin(), json_row.end(), is_integer)) {
      throw InputError(origin, fmt::format("'{}'", key), json_row.dump(), fmt::format("lists of {} integers", size));
    }
    return json_row.get<std::vector<std::int64_t>>();
  };
  const auto index = [&](std::int64_t value, const char* key) {
    if (value < 0 || value > INT32_MAX)
      throw InputError(origin, fmt::format("'{}'", key), std::to_string(value), "an index");
    return static_cast<int>(value);
  };
  for (const auto& bucket : reader.get<std::vector<std::vector<ordered_json>>>("buckets")) {
    auto& segments = plan.buckets.emplace_back();
    for (const ordered_json& segment : bucket) {
      const auto numbers = row(segment, "buckets", 3);
      segments.push_back({{numbers[0], numbers[1]}, index(numbers[2], "buckets")});
    }
  }
  for (const auto& rank : reader.get<std::vector<std::vector<std::vector<ordered_json>>>>("micro_groups")) {
    auto& groups = plan.micro_groups.emplace_back();
    for (const auto& members : rank) {
      MicroGroup& group = groups.emplace_back();
      for (const ordered_json& member : members) {
        const auto numbers = row(member, "micro_groups", 2);
        group.members.push_back({index(numbers[0], "micro_groups"), index(numbers[1], "micro_groups")});
      }
    }
  }
  reader.finish();
  return plan;
}

}  // namespace canzona
