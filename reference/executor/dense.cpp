#include "reference/executor/dense.hpp"

#include "reference/model/shard.hpp"

namespace canzona::reference {

template <class Scalar>
OptimizerPair<Scalar> make_optimizers(const Workload& workload, DType arithmetic) {
  auto chosen = workload.optimizer->make<Scalar>(workload.optimizer_options, arithmetic);
  if (!workload.optimizer->needs_whole_matrix) return {nullptr, std::move(chosen)};
  const OptimizerDescription& adamw = Optimizers::instance().find("adamw");
  return {std::move(chosen), adamw.make<Scalar>(Options(adamw.options, {}, adamw.name), arithmetic)};
}

template OptimizerPair<float> make_optimizers(const Workload&, DType);
template OptimizerPair<double> make_optimizers(const Workload&, DType);

template <class Scalar>
DenseReference<Scalar>::DenseReference(const Workload& workload, const Precision& precision, std::uint64_t seed)
    : model_(workload.model),
      dp_(workload.mesh.dp),
      precision_(precision),
      objective_(seed),
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
      for (const Block& block : parameter.blocks)
        states.push_back(optimizers_.matrix->init(parameter.block_shape(block)));
    }
  }
}

template <class Scalar>
void DenseReference<Scalar>::run(int iterations) {
  for (int count = 0; count < iterations; ++count, ++iteration_) {
    for (int parameter = 0; parameter < static_cast<int>(model_.parameters.size()); ++parameter) {
      const Matrix<Scalar> direction = update(parameter, averaged_gradient(parameter));
      const bool elementwise = model_.parameters[parameter].routing == Routing::elementwise;
      const auto& optimizer = elementwise ? optimizers_.elementwise : optimizers_.matrix;
      optimizer->apply(direction.data(), masters_[parameter].data(), direction.size());
      weights_[parameter] = rounded(precision_.wire.parameter, masters_[parameter]);
    }
  }
}

template <class Scalar>
Matrix<Scalar> DenseReference<Scalar>::averaged_gradient(int parameter) const {
  const Matrix<Scalar>& weights = weights_[parameter];
  const DType type = precision_.wire.gradient;
  Matrix<Scalar> sum = Matrix<Scalar>::Zero(weights.rows(), weights.cols());
  for (int dp_rank = 0; dp_rank < dp_; ++dp_rank) {
    const std::uint64_t key = objective_.gradient_key(iteration_, dp_rank, parameter);
    for (std::int64_t i = 0; i < sum.size(); ++i) {
      sum.data()[i] += round_to(type, objective_.gradient(key, i, weights.data()[i]));
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
