#include "reference/executor/dense.hpp"

#include "reference/model/shard.hpp"

namespace canzona::reference {

template <class Scalar>
OptimizerPair<Scalar> make_optimizers(const Workload& workload, DType arithmetic) {
  auto chosen = workload.optimizer->make<Scalar>(workload.optimizer_options, arithmetic);
  if (!workload.optimizer->needs_whole_matrix) return {nullptr, std::move(chosen)};
  return {std::move(chosen), workload.element_optimizer->make<Scalar>(workload.element_options, arithmetic)};
}

template OptimizerPair<float> make_optimizers(const Workload&, DType);
template OptimizerPair<double> make_optimizers(const Workload&, DType);

template <class Scalar>
DenseReference<Scalar>::DenseReference(const Workload& workload, const Precision& precision,
                                       const Objective<Scalar>& objective)
    : model_(workload.model),
      dp_(workload.mesh.dp),
      training_(workload.training),
      precision_(precision),
      objective_(objective),
      optimizers_(make_optimizers<Scalar>(workload, precision.arithmetic)) {
  for (std::size_t index = 0; index < model_.parameters.size(); ++index) {
    const Parameter& parameter = model_.parameters[index];
    Matrix<Scalar> master(parameter.shape.rows, parameter.shape.cols);
    for (std::int64_t i = 0; i < master.size(); ++i)
      master.data()[i] = objective_.initial_weight(static_cast<int>(index), i);
    weights_.push_back(rounded(precision.wire.parameter, master));
    masters_.push_back(std::move(master));
    auto& states = states_.emplace_back();
    if (parameter.routing == Routing::elementwise) {
      states.push_back(optimizers_.elementwise->init(parameter.shape));
    } else {
      for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
        states.push_back(optimizers_.matrix->init(parameter.block_shape(parameter.blocks[block])));
        states.back().turn = workload.turns[index][block];
      }
    }
  }
}

template <class Scalar>
void DenseReference<Scalar>::run(int iterations) {
  const int count = static_cast<int>(model_.parameters.size());
  for (const std::int64_t end = iteration_ + iterations; iteration_ < end; ++iteration_) {
    std::vector<Matrix<Scalar>> gradients;
    ExactSum squares;
    for (int parameter = 0; parameter < count; ++parameter) {
      gradients.push_back(averaged_gradient(parameter));
      for (const Scalar element : gradients.back().reshaped())
        squares.add(static_cast<double>(element) * static_cast<double>(element));
    }
    agreement_ = agree(squares, training_.clip_norm);
    if (agreement_.skip) continue;
    ++steps_;
    for (int parameter = 0; parameter < count; ++parameter) {
      const Matrix<Scalar> clipped = static_cast<Scalar>(agreement_.factor) * gradients[parameter];
      const Matrix<Scalar> direction = update(parameter, clipped);
      const bool elementwise = model_.parameters[parameter].routing == Routing::elementwise;
      const auto& optimizer = elementwise ? optimizers_.elementwise : optimizers_.matrix;
      optimizer->apply(steps_, direction.data(), masters_[parameter].data(), direction.size());
      weights_[parameter] = rounded(precision_.wire.parameter, masters_[parameter]);
    }
  }
}

template <class Scalar>
std::int64_t DenseReference<Scalar>::failed_refreshes() const {
  std::int64_t failed = 0;
  for (const auto& states : states_) {
    for (const auto& state : states) failed += state.failed_refreshes;
  }
  return failed;
}

template <class Scalar>
Matrix<Scalar> DenseReference<Scalar>::averaged_gradient(int parameter) const {
  const Matrix<Scalar>& weights = weights_[parameter];
  const DType type = precision_.wire.gradient;
  Matrix<Scalar> sum = Matrix<Scalar>::Zero(weights.rows(), weights.cols());
  for (int dp_rank = 0; dp_rank < dp_; ++dp_rank) {
    const auto gradients = objective_.gradients(iteration_, dp_rank, parameter, {0, training_.batch});
    for (std::int64_t i = 0; i < sum.size(); ++i) {
      const Scalar own = gradients.add_to(0, i, weights.data()[i]) / static_cast<Scalar>(training_.batch);
      sum.data()[i] += round_to(type, own);
    }
  }
  return rounded(type, Matrix<Scalar>(sum / static_cast<Scalar>(dp_)));
}

template <class Scalar>
Matrix<Scalar> DenseReference<Scalar>::update(int index, const Matrix<Scalar>& gradient) {
  const Parameter& parameter = model_.parameters[index];
  if (parameter.routing == Routing::elementwise) return optimizers_.elementwise->step(gradient, states_[index][0]);
  Matrix<Scalar> whole = Matrix<Scalar>::Zero(gradient.rows(), gradient.cols());
  for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
    place_block(optimizers_.matrix->step(take_block(gradient, parameter.blocks[block]), states_[index][block]),
                parameter.blocks[block], whole);
  }
  return whole;
}

template class DenseReference<float>;
template class DenseReference<double>;

}  // namespace canzona::reference
