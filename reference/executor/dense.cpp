#include "reference/executor/dense.hpp"

#include <algorithm>
#include <numeric>

#include "reference/core/parallel.hpp"
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
                                       const Objective<Scalar>& objective, const std::optional<Excerpt>& excerpt)
    : model_(workload.model),
      dp_(workload.mesh.dp),
      training_(workload.training),
      precision_(precision),
      objective_(objective),
      optimizers_(make_optimizers<Scalar>(workload, precision.arithmetic)),
      masters_(model_.parameters.size()),
      weights_(model_.parameters.size()),
      states_(model_.parameters.size()) {
  if (excerpt) {
    trained_ = excerpt->parameters;
    given_ = excerpt->agreements;
  } else {
    trained_.resize(model_.parameters.size());
    std::iota(trained_.begin(), trained_.end(), 0);
  }
  for (const int parameter : trained_) begin(parameter, workload.turns[static_cast<std::size_t>(parameter)]);
}

template <class Scalar>
void DenseReference<Scalar>::begin(int index, const std::vector<std::int64_t>& turns) {
  const Parameter& parameter = model_.parameters[index];
  Matrix<Scalar>& master = masters_[index];
  master.resize(parameter.shape.rows, parameter.shape.cols);
  for (std::int64_t i = 0; i < master.size(); ++i) master.data()[i] = objective_.initial_weight(index, i);
  weights_[index] = rounded(precision_.wire.parameter, master);
  auto& states = states_[index];
  if (parameter.routing == Routing::elementwise) {
    states.push_back(optimizers_.elementwise->init(parameter.shape));
    return;
  }
  for (std::size_t block = 0; block < parameter.blocks.size(); ++block) {
    states.push_back(optimizers_.matrix->init(parameter.block_shape(parameter.blocks[block])));
    states.back().turn = turns[block];
  }
}

template <class Scalar>
void DenseReference<Scalar>::run(int iterations) {
  for (const std::int64_t end = iteration_ + iterations; iteration_ < end; ++iteration_) {
    std::vector<Matrix<Scalar>> gradients;
    ExactSum squares;
    for (const int parameter : trained_) {
      gradients.push_back(averaged_gradient(parameter));
      if (given_) continue;
      for (const Scalar element : gradients.back().reshaped())
        squares.add(static_cast<double>(element) * static_cast<double>(element));
    }
    agreement_ = given_ ? given_->at(static_cast<std::size_t>(iteration_)) : agree(squares, training_.clip_norm);
    if (agreement_.skip) continue;
    ++steps_;
    for (std::size_t place = 0; place < trained_.size(); ++place) {
      const int parameter = trained_[place];
      const Matrix<Scalar> clipped = static_cast<Scalar>(agreement_.factor) * gradients[place];
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
  Matrix<Scalar> average(weights.rows(), weights.cols());
  constexpr std::int64_t kPiece = 1 << 20;  // elements that one core draws at a time
  for_each_in_parallel(static_cast<int>((average.size() + kPiece - 1) / kPiece), [&](int piece) {
    const Range elements{piece * kPiece, std::min((piece + 1) * kPiece, average.size())};
    std::fill(average.data() + elements.begin, average.data() + elements.end, Scalar{0});
    for (int dp_rank = 0; dp_rank < dp_; ++dp_rank) {
      const auto gradients = objective_.gradients(iteration_, dp_rank, parameter, {0, training_.batch});
      for (std::int64_t i = elements.begin; i < elements.end; ++i) {
        const Scalar own = gradients.add_to(0, i, weights.data()[i]) / static_cast<Scalar>(training_.batch);
        average.data()[i] += round_to(type, own);
      }
    }
    for (std::int64_t i = elements.begin; i < elements.end; ++i)
      average.data()[i] = round_to(type, average.data()[i] / static_cast<Scalar>(dp_));
  });
  return average;
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
