// What a device's memory was taken for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace canzona::optimized {

enum class Purpose {
  weights,
  masters,
  gradients,
  noise,            ///< from which gradients are made
  activations,      ///< their gradients and attention's scores among them
  optimizer_state,  ///< momentum, moments, preconditioners
  scratch,          ///< of optimizers, one update at a time
  micro_groups,     ///< gathered matrices and their updates
  communication,    ///< what collectives keep between arrival and sum; NCCL's own not among it
  libraries         ///< work memory of cuBLAS and of streams
};
constexpr std::array kPurposes{
    Purpose::weights,         Purpose::masters, Purpose::gradients,    Purpose::noise,         Purpose::activations,
    Purpose::optimizer_state, Purpose::scratch, Purpose::micro_groups, Purpose::communication, Purpose::libraries};
constexpr std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights: return "weights";
    case Purpose::masters: return "masters";
    case Purpose::gradients: return "gradients";
    case Purpose::noise: return "noise";
    case Purpose::activations: return "activations";
    case Purpose::optimizer_state: return "optimizer_state";
    case Purpose::scratch: return "scratch";
    case Purpose::micro_groups: return "micro_groups";
    case Purpose::communication: return "communication";
    case Purpose::libraries: return "libraries";
  }
  return "";
}

/// Bytes by purpose.
class Ledger {
 public:
  void add(Purpose purpose, std::int64_t bytes) { bytes_[static_cast<std::size_t>(purpose)] += bytes; }
  std::int64_t of(Purpose purpose) const { return bytes_[static_cast<std::size_t>(purpose)]; }
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : bytes_) sum += bytes;
    return sum;
  }
  /// What was added since.
  Ledger since(const Ledger& before) const {
    Ledger own = *this;
    for (const Purpose purpose : kPurposes) own.add(purpose, -before.of(purpose));
    return own;
  }
  friend bool operator==(const Ledger&, const Ledger&) = default;

 private:
  std::array<std::int64_t, kPurposes.size()> bytes_{};
};

}  // namespace canzona::optimized
