#include "reference/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

/// The layers whose parameters lie in a bucket, highest first, as its slots stand; backward finishes the last one last.
std::vector<int> layers_of(const Model& model, const GradientBuffer& buffer, const Bucket& bucket) {
  std::vector<int> layers;
  for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
    const int layer = model.parameters[buffer.slots[slot].parameter].layer;
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  return layers;
}

/// Builds one rank's schedule phase by phase, in the order of time.
class Unrolling {
 public:
  Unrolling(const Plan& plan, const Model& model, const GradientBuffer& buffer, int rank, int micro_batches)
      : plan_(plan), model_(model), buffer_(buffer), at_(plan.mesh.coordinate(rank)), micro_batches_(micro_batches) {
    schedule_.rank = rank;
    applied_.assign(model.parameters.size(), -1);
    for (const Bucket& bucket : buffer.buckets) layers_.push_back(layers_of(model, buffer, bucket));
  }

  Schedule unroll() && {
    for (int micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
      forward(micro_batch);
      backward(micro_batch);
    }
    agree();
    update_elements();
    update_matrices();
    gather_parameters();
    return std::move(schedule_);
  }

 private:
  int add(Action action, Stream stream, std::vector<int> waits_for = {}) {
    schedule_.steps.push_back({action, stream, std::move(waits_for), {}});
    return static_cast<int>(schedule_.steps.size()) - 1;
  }

  void forward(int micro_batch) {
    for (int layer = 0; layer <= model_.layers + 1; ++layer) {
      const int forward = add(Forward{layer, micro_batch}, Stream::compute);
      if (micro_batch == 0) forwards_.push_back(forward);
    }
  }

  void backward(int micro_batch) {
    const bool is_last = micro_batch + 1 == micro_batches_;
    std::size_t bucket = 0;
    for (int layer = model_.layers + 1; layer >= 0; --layer) {
      const int backward = add(Backward{layer, micro_batch}, Stream::compute);
      for (; is_last && bucket < layers_.size() && layers_[bucket].back() == layer; ++bucket) {
        last_reduction_ = add(ReduceGradients{static_cast<int>(bucket)}, Stream::dp, {backward});
      }
    }
  }

  void agree() {
    const int over_dp = add(AgreeOnGradients{false}, Stream::dp, {last_reduction_});
    agreed_ = add(AgreeOnGradients{true}, Stream::tp, {over_dp});
    // Both work on one sum: the next iteration's may not begin before this one's has been read.
    schedule_.steps[over_dp].waits_for_previous.push_back(agreed_);
  }

  void update_elements() {
    for (std::size_t bucket = 0; bucket < buffer_.buckets.size(); ++bucket) {
      if (owns_elements(static_cast<int>(bucket))) {
        elements_.push_back(add(UpdateElements{static_cast<int>(bucket)}, Stream::compute, {agreed_}));
      } else {
        elements_.push_back(-1);
      }
    }
  }

  bool owns_elements(int index) const {
    const Bucket& bucket = buffer_.buckets[index];
    const std::vector<Range> owned = owned_ranges(plan_, buffer_, index, at_.dp);
    for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      if (model_.parameters[buffer_.slots[slot].parameter].routing != Routing::elementwise) continue;
      for (const Range& range : owned) {
        if (!intersection(range, buffer_.slots[slot].elements).empty()) return true;
      }
    }
    return false;
  }

  /// Pipelined: gather i + 1 stands before scatter i on the tp stream, and apply i after the updates of i + 1 on the
  /// compute stream, so that communication runs under computation. Otherwise group after group.
  void update_matrices() {
    const auto& groups = plan_.groups_of(at_.dp);
    const int count = static_cast<int>(groups.size());
    const int ahead = plan_.pipelined ? 1 : 0;
    int gathered = 0;
    std::vector<int> gathers;
    std::vector<int> scatters;
    for (int group = 0; group < count + ahead; ++group) {
      for (; gathered < std::min(count, group + 1 + ahead); ++gathered) gathers.push_back(gather(gathered, scatters));
      if (group < count) scatters.push_back(update(groups[group], group, gathers[group]));
      if (group >= ahead) apply(groups[group - ahead], scatters[group - ahead]);
    }
  }

  int gather(int group, const std::vector<int>& scatters) {
    std::vector<int> waits_for{agreed_};
    // A redundant update has no scatter on the tp stream to hold the next gather back.
    if (!plan_.pipelined && !scatters.empty()) waits_for.push_back(scatters.back());
    return add(GatherShards{group}, Stream::tp, std::move(waits_for));
  }

  /// The step after which a group's updates are at the shards.
  int update(const MicroGroup& members, int group, int gathered) {
    int last = -1;
    for (const HostedMatrix& member : members.members) {
      if (plan_.matrix_update == MatrixUpdate::redundant || member.host == at_.tp) {
        last = add(Update{member.parameter}, Stream::compute, {gathered});
      }
    }
    if (plan_.matrix_update == MatrixUpdate::redundant) return last;
    return add(ScatterUpdates{group}, Stream::tp, last < 0 ? std::vector<int>{} : std::vector<int>{last});
  }

  void apply(const MicroGroup& group, int scattered) {
    for (const HostedMatrix& member : group.members) {
      applied_[member.parameter] = add(Apply{member.parameter}, Stream::compute, {scattered});
    }
  }

  void gather_parameters() {
    if (plan_.parameter_gather == ParameterGather::none) return;
    const bool blocks = plan_.parameter_gather == ParameterGather::after_step;
    const int last_update = std::max(*std::max_element(applied_.begin(), applied_.end()),
                                     *std::max_element(elements_.begin(), elements_.end()));
    // The next forward begins with the embedding, which lies in the last bucket.
    for (int bucket = static_cast<int>(buffer_.buckets.size()) - 1; bucket >= 0; --bucket) {
      std::vector<int> waits_for;
      if (blocks) {
        if (last_update >= 0) waits_for.push_back(last_update);
      } else {
        waits_for = updates_of(bucket);
      }
      const int gather = add(GatherParameters{bucket}, Stream::dp, std::move(waits_for));
      if (blocks) {
        if (bucket == 0) schedule_.steps[forwards_.front()].waits_for_previous.push_back(gather);
      } else {
        for (const int layer : layers_[bucket]) {
          schedule_.steps[forwards_[layer]].waits_for_previous.push_back(gather);
        }
      }
    }
  }

  /// This rank's last step that writes weights of a bucket (the compute stream runs in order).
  std::vector<int> updates_of(int index) const {
    const Bucket& bucket = buffer_.buckets[index];
    int last = elements_[index];
    for (int slot = bucket.first_slot; slot < bucket.end_slot; ++slot)
      last = std::max(last, applied_[buffer_.slots[slot].parameter]);
    return last < 0 ? std::vector<int>{} : std::vector<int>{last};
  }

  const Plan& plan_;
  const Model& model_;
  const GradientBuffer& buffer_;
  Coordinate at_;
  Schedule schedule_;
  std::vector<std::vector<int>> layers_;  // by bucket
  int micro_batches_;
  std::vector<int> forwards_;  // the first micro-batch's step by layer
  int last_reduction_ = -1;
  int agreed_ = -1;
  std::vector<int> elements_;  // step by bucket, −1 where this rank owns no elementwise element
  std::vector<int> applied_;   // step by parameter, −1 where this rank applies nothing
};

struct Description {
  static std::string pass(const char* name, int layer, int micro_batch) {
    if (micro_batch == 0) return fmt::format("{}({})", name, layer);
    return fmt::format("{}({}, micro-batch {})", name, layer, micro_batch);
  }
  std::string operator()(const Forward& s) const { return pass("Forward", s.layer, s.micro_batch); }
  std::string operator()(const Backward& s) const { return pass("Backward", s.layer, s.micro_batch); }
  std::string operator()(const ReduceGradients& s) const { return fmt::format("ReduceGradients({})", s.bucket); }
  std::string operator()(const AgreeOnGradients& s) const {
    return fmt::format("AgreeOnGradients({})", s.over_tp ? "tp" : "dp");
  }
  std::string operator()(const GatherShards& s) const { return fmt::format("GatherShards({})", s.group); }
  std::string operator()(const Update& s) const { return fmt::format("Update({})", s.parameter); }
  std::string operator()(const UpdateElements& s) const { return fmt::format("UpdateElements({})", s.bucket); }
  std::string operator()(const ScatterUpdates& s) const { return fmt::format("ScatterUpdates({})", s.group); }
  std::string operator()(const Apply& s) const { return fmt::format("Apply({})", s.parameter); }
  std::string operator()(const GatherParameters& s) const { return fmt::format("GatherParameters({})", s.bucket); }
};

}  // namespace

std::string_view name_of(Stream stream) {
  switch (stream) {
    case Stream::compute: return "compute";
    case Stream::dp: return "dp";
    case Stream::tp: return "tp";
  }
  throw Error("no such stream");
}

Schedule make_schedule(const Plan& plan, const Model& model, const GradientBuffer& buffer, int rank,
                       int micro_batches) {
  return Unrolling(plan, model, buffer, rank, micro_batches).unroll();
}

void validate(const Schedule& schedule) {
  const int count = static_cast<int>(schedule.steps.size());
  for (int index = 0; index < count; ++index) {
    const Step& step = schedule.steps[index];
    const auto check = [&](int dependency, int end) {
      if (dependency < 0 || dependency >= end) {
        throw PlanError(fmt::format("rank {}: step {}, {}, waits for step {}", schedule.rank, index,
                                    describe(step.action), dependency));
      }
    };
    for (const int dependency : step.waits_for) check(dependency, index);
    for (const int dependency : step.waits_for_previous) check(dependency, count);
  }
}

std::string describe(const Action& action) { return std::visit(Description{}, action); }

nlohmann::ordered_json to_json(const Schedule& schedule) {
  nlohmann::ordered_json json;
  json["format"] = 1;
  json["rank"] = schedule.rank;
  json["steps"] = nlohmann::ordered_json::array();
  for (const Step& step : schedule.steps) {
    nlohmann::ordered_json entry;
    entry["action"] = describe(step.action);
    entry["stream"] = name_of(step.stream);
    entry["waits_for"] = step.waits_for;
    entry["waits_for_previous"] = step.waits_for_previous;
    json["steps"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace canzona
