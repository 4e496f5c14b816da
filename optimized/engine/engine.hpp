// Runs a schedule for one rank on a device: the steps of the reference executor, asynchronously and for real.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optimized/engine/assembly.hpp"
#include "optimized/engine/captured_work.hpp"
#include "optimized/engine/layers.hpp"
#include "optimized/engine/rank.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/executor/dense.hpp"
#include "reference/schedule/schedule.hpp"
#include "reference/strategies/workload.hpp"

namespace canzona::optimized {

/// Gradients of a training problem that an engine is given recur so soon, by custom: enough for a stale one to be seen,
/// few enough to be drawn beforehand.
constexpr std::int64_t kGradientPeriod = 2;

struct EngineSettings {
  bool overlap = true;  ///< off: each step is waited for before the next is begun
  bool graphs = false;  ///< updates are captured, where the device can, and launched as graphs
  Tokens tokens = {};   ///< of a micro-batch
  /// fp32, or bf16 or fp16 for products, updates as they travel, activations, and the model's weights beside masters in
  /// fp32; gradients travel in fp32 or bf16.
  reference::Precision precision = reference::make_precision(DType::fp32, DType::fp32);
  std::string variant = {};         ///< of the matrix optimizer, where it has several; empty: its first
  std::size_t kept_iterations = 2;  ///< whose times can be asked for afterwards
};

/// When a step ran, in seconds on the device's clock.
struct StepTime {
  double begin = 0;
  double end = 0;
};

/// One rank. All memory is taken by the constructor. Gradients are kept in fp32, and so are master weights, of the
/// elements that this rank owns; where weights are fp32, they are their own masters.
class Engine {
 public:
  /// The noise of `objective` has to recur: it is drawn here. All arguments must outlive the engine.
  Engine(const Workload& workload, Rank& rank, const reference::Objective<float>& objective,
         const EngineSettings& settings);
  ~Engine();

  /// Begins one iteration; returns when all ranks have agreed on its gradient and the rest is under way.
  void iterate();
  /// Waits for everything that is under way. Rethrows what a step threw.
  void finish();

  const Schedule& schedule() const { return schedule_; }
  /// By step, of one of the last iterations, counted from 0; after finish().
  std::vector<StepTime> times(std::int64_t iteration) const;
  std::int64_t iterations() const { return iteration_; }
  /// What it has taken of its device.
  const Ledger& memory() const { return memory_; }
  const Agreement& agreement() const { return agreement_; }
  std::int64_t steps() const { return steps_; }                ///< iterations that were not skipped
  std::int64_t matrix_steps() const { return matrix_steps_; }  ///< steps of the matrix optimizer on a block
  std::int64_t failed_refreshes() const;                       ///< of this rank's matrices; after finish()
  /// What this rank has sent; the other ranks' entries are 0.
  const Traffic& traffic() const { return traffic_; }

  /// Copies of elements of the workload's buffer, after finish(): of the model's weights, and of master weights, which
  /// this rank has to own.
  std::vector<float> weights(const Range& elements);
  std::vector<float> weights() { return weights({0, workload_.buffer.numel()}); }
  std::vector<float> masters(const Range& elements);

 private:
  /// Blocks of one parameter that have one shape, updated as a stack.
  struct BlockStack {
    std::unique_ptr<MatrixOptimizer> optimizer;
    std::int64_t count = 0;
    std::vector<Rectangle> rectangles;
    bool is_in_place = false;  ///< its gradient stands among the shards as the optimizer needs it
    CapturedWork work = {};
  };
  /// A run of elements of one elementwise parameter that this rank owns.
  struct OwnedElements {
    Range range;
    std::unique_ptr<MatrixOptimizer> optimizer;
  };

  void take_memory();
  void take_masters();
  template <class Element>
  std::vector<float> draw(const Element& element) const;
  void put_weights(const Slot& slot, const float* initial);
  void draw_noise();
  void prepare_dp_collectives();
  void prepare_micro_group(int index);
  void prepare_optimizers();
  void prepare_stacks();
  bool computes(const HostedMatrix& member) const;
  /// A TP group of one: its shards are whole matrices, which nobody has to send.
  bool is_whole() const { return workload_.mesh.tp == 1; }
  bool redundant() const { return workload_.plan.matrix_update == MatrixUpdate::redundant; }
  const Parameter& parameter(int index) const { return workload_.model.parameters[index]; }
  DType type() const { return settings_.precision.wire.parameter; }  ///< of weights and updates
  /// Where elements of the workload's buffer begin in another of its size.
  template <class T>
  DevicePointer<T> place(const Buffer& buffer, std::int64_t position) const {
    return buffer.as<T>() + position;
  }
  std::int64_t begin_of(int parameter) const { return workload_.buffer.slot_of(parameter).elements.begin; }
  DevicePointer<float> slot(const Buffer& buffer, int parameter) const {
    return place<float>(buffer, begin_of(parameter));
  }
  /// The elements that this rank owns.
  std::vector<Range> owned() const;
  /// The master weights from a position on that this rank owns.
  DevicePointer<float> master(std::int64_t position) const;

  Stream& on(canzona::Stream stream) { return *streams_[static_cast<std::size_t>(stream)]; }
  void enqueue(int index);
  void perform(const Action& action);
  void communicate(Collective* collective, canzona::Collective kind, Stream& stream);
  void forward(const Forward& step);
  void backward(const Backward& step);
  void differentiate(const Slot& slot, const Backward& step);
  void agree(bool over_tp);
  void add_own_squares(Stream& stream);
  void put_step_values();
  void update(int parameter);
  void update_stack(BlockStack& stack, int parameter);
  DevicePointer<float> shards_of(int parameter) const;
  /// Where the update of a matrix stands, its shards one after another.
  template <class T>
  DevicePointer<T> updates_of(int parameter) const {
    return updates_[group_of_.at(parameter) % 2].as<T>() + staged_.at(parameter);
  }
  /// Where the update of this rank's shard comes back: the gradient's place, which is free by then.
  template <class T>
  DevicePointer<T> returned_update(int parameter) const {
    return DevicePointer<T>(reinterpret_cast<T*>(slot(gradient_, parameter).raw()));
  }
  template <class T>
  void place_update(const BlockStack& stack, DevicePointer<const float> update, DevicePointer<T> leaving);
  void update_elements(int bucket);
  void run(CapturedWork& work, std::optional<std::int64_t> form, const std::function<void()>& body) {
    work.run(on(canzona::Stream::compute), settings_.graphs ? form : std::nullopt, body);
  }
  void apply(int parameter);

  const Workload& workload_;
  Rank& rank_;
  Coordinate at_;
  Device& device_;
  reference::Objective<float> objective_;
  EngineSettings settings_;
  reference::OptimizerPair<float> rules_;  // what only depends on the step's number
  Schedule schedule_;
  std::vector<std::string> names_;  // of its steps

  Buffer weights_, gradient_, masters_;
  std::map<std::int64_t, std::int64_t> masters_of_;  // by where a run of owned elements begins: where its masters do
  std::vector<Buffer> noise_;                        // by iteration of the objective's period, then by sample
  std::unique_ptr<Layers> layers_;
  // Micro-groups alternate between two halves: a gather fills one while the group before is computed.
  Buffer gathered_[2], updates_[2];
  Buffer stack_gradient_, stack_update_, element_update_;
  std::map<int, std::int64_t> staged_;  // by parameter: where its shards or its update begin in their half
  std::map<int, int> group_of_;         // by parameter: its micro-group
  std::vector<std::unique_ptr<Collective>> reductions_, parameter_gathers_;  // by bucket
  std::vector<std::unique_ptr<Collective>> gathers_, scatters_;              // by micro-group
  std::unique_ptr<Collective> sums_[2];                                      // over DP, over TP
  Ledger memory_;
  Workspace workspace_;
  std::map<int, std::vector<BlockStack>> stacks_;     // by parameter
  std::vector<std::vector<OwnedElements>> elements_;  // by bucket
  std::vector<CapturedWork> element_work_;            // by bucket
  const EngineOptimizer* of_matrices_ = nullptr;      // null where the optimizer asked for is elementwise
  const EngineOptimizer* of_elements_ = nullptr;
  Buffer matrix_values_, element_values_;  // StepValues of the step under way

  struct StepEvents {
    std::unique_ptr<Event> begun, ended;
  };
  std::vector<std::vector<StepEvents>> events_;  // by iteration of the last few, by step
  Buffer squares_;                               // an ExactSum as integers
  Buffer agreed_squares_;                        // the same on the host, once all have agreed
  Agreement agreement_;
  std::int64_t iteration_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t matrix_steps_ = 0;
  Traffic traffic_;
  std::unique_ptr<Stream> streams_[kStreams];  // last: they end before what they use goes
};

}  // namespace canzona::optimized
