// Muon on a device, open to optimizers that refine its orthogonalized momentum. Must equal
// reference/optimizers/muon.cpp.
#pragma once

#include "optimized/optimizers/newton_schulz.hpp"
#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/muon.hpp"

namespace canzona::optimized {

class Muon : public MatrixOptimizer {
 public:
  explicit Muon(const Preparation& own);

  void step(Stream& stream, std::int64_t number, DevicePointer<const StepValues> values,
            DevicePointer<const float> gradient, DevicePointer<float> update) override;

 protected:
  /// The orthogonalized momentum of each matrix, in the workspace until the next step of any.
  DevicePointer<float> orthogonalized(Stream& stream, DevicePointer<const StepValues> values,
                                      DevicePointer<const float> gradient);

  /// update ← scale·stack
  void scale(Stream& stream, DevicePointer<const float> stack, DevicePointer<float> update) const;

  /// The first slot of the workspace that Muon leaves alone.
  static constexpr std::size_t kFreeSlot = 2 + NewtonSchulz::kSlots;

 private:
  Workspace& workspace_;
  Shape shape_;
  std::int64_t count_;
  float mu_;
  float weight_;
  bool nesterov_;
  double eps_;
  bool adds_eps_;
  float scale_;
  DType momentum_type_;
  Buffer momentum_;
  NewtonSchulz newton_schulz_;
};

}  // namespace canzona::optimized
