// A^(−1/p) of a symmetric positive semi-definite matrix on a device, three ways. Must equal
// reference/optimizers/inverse_root.cpp. Nothing is decided on the host: whether iterations go on and whether there is
// a root stand in flags on the device.
#pragma once

#include <vector>

#include "optimized/optimizers/optimizer.hpp"
#include "reference/optimizers/inverse_root.hpp"

namespace canzona::optimized {

/// Roots of matrices of T, float or double, up to a longest side; in slots of a workspace that are reserved when this
/// is made.
template <class T>
class InverseRoot {
 public:
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  static constexpr std::size_t kSlots = 13;  ///< from `first_slot`

  /// Throws InputError where coupled iterations are asked for a root that is no integer.
  InverseRoot(Device& device, Workspace& workspace, std::size_t first_slot, std::int64_t longest, double root,
              double epsilon, const reference::RootMethod& method);

  /// X ← (A/divisor + εI)^(−1/p). Where there is none X stays as it is and *failed becomes 1.
  void compute(Stream& stream, In A, T divisor, Out X, DevicePointer<std::int32_t> failed) const;

 private:
  template <class Value>
  DevicePointer<Value> slot(std::size_t index) const {
    return workspace_.slot<Value>(first_slot_ + index);
  }
  Out square(std::size_t index, std::int64_t n) const { return {slot<T>(index), n, n}; }
  MatrixProducts<T>& products() const { return device_.linear_algebra().template in<T>(); }
  Factorizations<T>& factorizations() const { return device_.linear_algebra().template factorizations<T>(); }

  void add_ridge(Stream& stream, std::int64_t n) const;
  void by_eigenvalues(Stream& stream, std::int64_t n) const;
  void by_newton(Stream& stream, std::int64_t n) const;
  void by_series(Stream& stream, std::int64_t n) const;
  void check_root(Stream& stream, std::int64_t n) const;

  void begin(Stream& stream, std::int64_t n, double numerator) const;
  void newton_factor(Stream& stream, std::int64_t n) const;
  void series_factor(Stream& stream, std::int64_t n) const;
  void advance(Stream& stream, std::int64_t n) const;
  In power(Stream& stream, In base) const;
  void measure(Stream& stream, In M, std::size_t scalar) const;

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
