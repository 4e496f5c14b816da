#include "harness/check/determined.hpp"

#include <Eigen/Eigenvalues>
#include <cmath>

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

}  // namespace

Determined::Determined(const Parameter& parameter, const std::vector<Matrix<float>>& responses, double way) {
  double compared = 0;
  for (const Block& block : parameter.blocks) {
    const Shape shape = parameter.block_shape(block);
    Matrix<double> second_moment = Matrix<double>::Zero(shape.longer(), shape.longer());
    for (const Matrix<float>& response : responses) {
      const Matrix<double> own = lying(response, block);
      second_moment += own.transpose() * own / static_cast<double>(responses.size());
    }
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(second_moment);
    // A direction's part of the way, were the way the same in every coordinate.
    const double part =
        way * std::sqrt(static_cast<double>(shape.shorter()) / static_cast<double>(parameter.shape.numel()));
    Eigen::Index count = 0;  // eigenvalues ascend
    while (count < shape.longer() && std::sqrt(std::max(solver.eigenvalues()[count], 0.0)) < kTurned * part) ++count;
    directions_.emplace_back(solver.eigenvectors().leftCols(count));
    compared += static_cast<double>(count * shape.shorter());
  }
  share_ = compared / static_cast<double>(parameter.shape.numel());
}

double Determined::norm(const Parameter& parameter, const Matrix<float>& difference) const {
  if (directions_.empty()) return difference.cast<double>().norm();
  double squares = 0;
  for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
    const Matrix<double> own = lying(difference, parameter.blocks[block]);
    squares += (own * directions_[block]).squaredNorm();
  }
  return std::sqrt(squares);
}

}  // namespace canzona::harness
