#include "harness/check/determined.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "optimized/engine/counting_device.hpp"
#include "reference/model/shard.hpp"

namespace canzona::harness {
namespace {

/// One rounding may turn a direction by so much of its part of the way.
constexpr double kTurned = 1e-3;

/// The block with its longer side in columns.
Matrix<double> lying(const Matrix<float>& whole, const Block& block) {
  const Matrix<double> own = take_block(whole, block).cast<double>();
  return own.rows() > own.cols() ? Matrix<double>(own.transpose()) : own;
}

/// Σ RᵀR of matrices that lie, and its eigenvectors.
class Moment {
 public:
  Moment(optimized::Device& device, Shape shape)
      : device_(device),
        factorizations_(device.linear_algebra().factorizations<double>()),
        shape_(shape),
        sum_(device.allocate_elements<double>(n() * n())),
        values_(device.allocate_elements<double>(n())),
        found_(device.allocate_elements<std::int32_t>(1)),
        response_(device.allocate_elements<double>(shape.numel())),
        work_(device.allocate(static_cast<std::size_t>(factorizations_.bytes(n())))),
        stream_(device.make_stream()) {}

  void add(const Matrix<double>& lying) {
    put(lying.data(), response_, lying.size());
    device_.linear_algebra().in<double>().symmetric_product(
        *stream_, 1, {response_.as<const double>(), shape_.shorter(), n()}, optimized::Transpose::yes, 1, sum());
    stream_->synchronize();  // before the matrix goes
  }

  /// In columns, those with eigenvalues below the limit; none where there are no eigenvalues.
  Matrix<double> directions_below(double limit) {
    factorizations_.eigh(*stream_, sum(), values_.as<double>(), found_.as<std::int32_t>(), work_.as<std::byte>());
    std::int32_t found = 0;
    get(found_, &found, 1);
    if (found == 0) return Matrix<double>(n(), 0);
    std::vector<double> values(static_cast<std::size_t>(n()));
    get(values_, values.data(), n());
    Matrix<double> vectors(n(), n());
    get(sum_, vectors.data(), vectors.size());
    const auto first_above = std::lower_bound(values.begin(), values.end(), limit);  // they ascend
    return vectors.leftCols(first_above - values.begin());
  }

 private:
  std::int64_t n() const { return shape_.longer(); }
  optimized::MatrixView<double> sum() const { return {sum_.as<double>(), n(), n()}; }

  template <class T>
  void put(const T* from, const optimized::Buffer& to, std::int64_t count) {
    device_.copy(*stream_, from, to.as<T>().raw(), static_cast<std::size_t>(count) * sizeof(T));
  }
  template <class T>
  void get(const optimized::Buffer& from, T* to, std::int64_t count) {
    device_.copy(*stream_, from.as<T>().raw(), to, static_cast<std::size_t>(count) * sizeof(T));
    stream_->synchronize();
  }

  optimized::Device& device_;
  optimized::Factorizations<double>& factorizations_;
  Shape shape_;
  optimized::Buffer sum_, values_, found_, response_, work_;
  std::unique_ptr<optimized::Stream> stream_;
};

}  // namespace

Determined::Determined(const Parameter& parameter, const std::vector<Matrix<float>>& responses, double way,
                       optimized::Device& device) {
  double compared = 0;
  for (const Block& block : parameter.blocks) {
    const Shape shape = parameter.block_shape(block);
    Moment moment(device, shape);
    for (const Matrix<float>& response : responses) moment.add(lying(response, block));
    // A direction's part of the way, were the way the same in every coordinate.
    const double part =
        way * std::sqrt(static_cast<double>(shape.shorter()) / static_cast<double>(parameter.shape.numel()));
    const double limit = kTurned * part * kTurned * part * static_cast<double>(responses.size());
    directions_.push_back(moment.directions_below(limit));
    compared += static_cast<double>(directions_.back().cols() * shape.shorter());
  }
  share_ = compared / static_cast<double>(parameter.shape.numel());
}

std::int64_t Determined::bytes_on_device(const Parameter& parameter, optimized::Device& device) {
  std::int64_t most = 0;
  for (const Block& block : parameter.blocks) {
    const std::unique_ptr<optimized::Device> counting = optimized::make_counting_device(&device);
    const Moment moment(*counting, parameter.block_shape(block));
    most = std::max(most, counting->taken().total());
  }
  return most;
}

double Determined::norm(const Parameter& parameter, const Matrix<float>& difference) const {
  if (!difference.allFinite()) return std::numeric_limits<double>::quiet_NaN();
  if (directions_.empty()) return difference.cast<double>().norm();
  double squares = 0;
  for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
    const Matrix<double> own = lying(difference, parameter.blocks[block]);
    squares += (own * directions_[block]).squaredNorm();
  }
  return std::sqrt(squares);
}

}  // namespace canzona::harness
