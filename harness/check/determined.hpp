// Which directions of a parameter a computation in fp32 determines, found from runs whose gradients differ by one
// rounding.
#pragma once

#include <vector>

#include "optimized/device/device.hpp"
#include "reference/core/matrix.hpp"
#include "reference/model/model.hpp"

namespace canzona::harness {

/// SOAP normalises what lies in the null space of a low-rank factor, which is noise: there two runs may differ by all
/// of their update. Of each block only directions along its longer side are compared that one rounding of the gradients
/// turns by less than a thousandth.
class Determined {
 public:
  /// Everything is compared.
  Determined() = default;
  /// `responses`: by how much disturbed runs moved the parameter elsewhere; `way`: how far it moved. Finds all that is
  /// undetermined only if there are about as many responses as the longest side has shorter ones. Their directions are
  /// found on `device`, in fp64.
  Determined(const Parameter& parameter, const std::vector<Matrix<float>>& responses, double way,
             optimized::Device& device);
  /// Bytes of the device's memory that this takes. Throws InputError where a side is beyond its factorizations.
  static std::int64_t bytes_on_device(const Parameter& parameter, optimized::Device& device);

  /// The share of the parameter's coordinates that are compared.
  double share() const { return share_; }
  /// The norm of a difference, of what is compared of it; NaN where the difference is not finite anywhere.
  double norm(const Parameter& parameter, const Matrix<float>& difference) const;

 private:
  std::vector<Matrix<double>> directions_;  // by block, in columns; none where everything is compared
  double share_ = 1;
};

}  // namespace canzona::harness
