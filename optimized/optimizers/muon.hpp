// Muon on a device, open to optimizers that refine its orthogonalized momentum. Must equal
// reference/optimizers/muon.cpp.
#pragma once

#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/muon.hpp"

namespace canzona::optimized {

class Muon : public MatrixOptimizer {
 public:
  Muon(const Options& options, Device& device, Workspace& workspace, Shape shape);

  void step(Stream& stream, float factor, MatrixIn gradient, MatrixOut update) override;

 protected:
  /// The orthogonalized momentum, in the workspace until the next step of any matrix.
  MatrixOut orthogonalized(Stream& stream, float factor, MatrixIn gradient);

  /// update ← scale·matrix
  void scale(Stream& stream, MatrixIn matrix, MatrixOut update) const;

  /// The first slot of the workspace that Muon leaves alone.
  static constexpr std::size_t kFreeSlot = 5;

 private:
  Device& device_;
  Workspace& workspace_;
  float mu_;
  float weight_;
  bool nesterov_;
  std::vector<reference::Coefficients> coefficients_;
  double eps_;
  bool adds_eps_;
  float scale_;
  Buffer momentum_;
};

}  // namespace canzona::optimized
