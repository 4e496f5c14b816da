// How each figure of a calibration is timed, with the engine's own calls. A step goes over a whole model, so that what
// it comes to next is in no cache: what a probe goes over moves on from one repeat to the next.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "harness/calibrate/calibrate.hpp"
#include "harness/calibrate/figures.hpp"
#include "harness/simulate/cluster.hpp"

namespace canzona::harness {

/// One figure: what is timed, and how it enters the cluster.
struct Probe {
  std::function<void(optimized::Stream&)> start;
  std::function<void(Cluster&, double seconds)> enter;
  std::int64_t repeats = 1;    ///< in one timing
  bool is_collective = false;  ///< one figure of all ranks
};

/// Of one kind and size, which take turns.
using Collectives = std::vector<std::unique_ptr<optimized::Collective>>;

/// The probes of a rank and the memory that they work on.
class Probes {
 public:
  Probes(optimized::Rank& rank, const CalibrationRequest& request, const Workload& workload, int ranks_per_node);

  std::vector<Probe>& all() { return probes_; }
  /// Of one repeat.
  double seconds(const Probe& probe);
  void finish() { stream_->synchronize(); }

 private:
  optimized::DevicePointer<float> elements(std::int64_t count);
  void add_launch();
  void add_pass();
  void add_agreement();
  void add_softmax(const std::vector<LayerOperation>& operations);
  void add_products(const std::set<ProductKey>& keys);
  template <class T>
  void multiply(optimized::Stream& stream, const ProductKey& key);
  template <class T>
  optimized::DevicePointer<T> next_weights(std::int64_t count);
  void enter_products(Cluster& cluster, const ProductKey& key, double seconds) const;
  void add_factorization(Factorization::Kind kind, std::int64_t n);
  void add_collectives(optimized::Communicator& group, const CommunicationGroup& spread,
                       const std::vector<std::int64_t>& sizes);
  void add_place(optimized::Communicator& group, optimized::DevicePointer<float> data,
                 optimized::DevicePointer<float> arriving, std::int64_t count,
                 std::map<CollectiveKind, Collectives>& own);
  void add_collective(CollectiveKind kind, const CommunicationGroup& spread, std::int64_t bytes,
                      Collectives collectives);

  optimized::Rank& rank_;
  const Workload& workload_;
  const DType type_;
  std::vector<optimized::Buffer> buffers_;
  /// A, B and C of a product: an update comes back to a matrix after some products on others.
  std::array<std::array<optimized::DevicePointer<float>, 3>, 3> operands_;
  std::size_t next_operands_ = 0;
  optimized::DevicePointer<float> weights_;
  std::int64_t weight_count_ = 0;
  std::int64_t next_weight_ = 0;
  std::vector<Probe> probes_;
  std::unique_ptr<optimized::Event> begun_, ended_;
  std::unique_ptr<optimized::Stream> stream_;  // last: it ends before what it uses goes
};

}  // namespace canzona::harness
