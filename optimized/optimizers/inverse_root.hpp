// A^(−1/p) of a symmetric positive semi-definite matrix on a device, three ways. Must equal
// reference/optimizers/inverse_root.cpp. Nothing is decided on the host: whether iterations go on and whether there is
// a root stand in flags on the device.
#pragma once

#include <vector>

#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/inverse_root.hpp"

namespace canzona::optimized {

/// Roots of matrices up to a longest side, in slots of a workspace that are reserved when this is made.
class InverseRoot {
 public:
  static constexpr std::size_t kSlots = 13;  ///< from `first_slot`

  /// Throws InputError where coupled iterations are asked for a root that is no integer.
  InverseRoot(Device& device, Workspace& workspace, std::size_t first_slot, std::int64_t longest, double root,
              double epsilon, const reference::RootMethod& method);

  /// X ← (A/divisor + εI)^(−1/p). Where there is none X stays as it is and *failed becomes 1.
  void compute(Stream& stream, MatrixIn A, float divisor, MatrixOut X, DevicePointer<std::int32_t> failed) const;

 private:
  template <class T>
  DevicePointer<T> slot(std::size_t index) const {
    return workspace_.slot<T>(first_slot_ + index);
  }
  MatrixOut square(std::size_t index, std::int64_t n) const { return {slot<float>(index), n, n}; }

  void add_ridge(Stream& stream, std::int64_t n) const;
  void by_eigenvalues(Stream& stream, std::int64_t n) const;
  void by_newton(Stream& stream, std::int64_t n) const;
  void by_series(Stream& stream, std::int64_t n) const;
  void check_root(Stream& stream, std::int64_t n) const;

  void begin(Stream& stream, std::int64_t n, double numerator) const;
  void newton_factor(Stream& stream, std::int64_t n) const;
  void series_factor(Stream& stream, std::int64_t n) const;
  void advance(Stream& stream, std::int64_t n) const;
  MatrixIn power(Stream& stream, MatrixIn base) const;
  void measure(Stream& stream, MatrixIn M, std::size_t scalar) const;

  Device& device_;
  Workspace& workspace_;
  std::size_t first_slot_;
  double root_;
  int p_;  ///< the root as an integer, for coupled iterations
  double epsilon_;
  reference::RootMethod method_;
  std::vector<double> series_;  ///< coefficients of coupled_higher_order
};

}  // namespace canzona::optimized
