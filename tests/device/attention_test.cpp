// Attention on a device of the backend under test: against values by hand, and its gradient against differences.
#include "optimized/engine/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "optimized/engine/threads.hpp"
#include "reference/core/matrix.hpp"
#include "tests/backend.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

using testing_support::random_matrix;

/// What forward gives, and backward where there is a gradient.
struct Outcome {
  Matrix<float> context, qkv_gradient;
};

Outcome attend(const AttentionShape& shape, const Matrix<float>& qkv, const Matrix<float>& context_gradient = {}) {
  Outcome outcome;
  run_on_threads({1, 1}, 60, testing_support::backend(), [&](Rank& rank) {
    Attention<float> attention(rank.device, shape);
    const auto stream = rank.device.make_stream();
    const auto put = [&](const Matrix<float>& matrix, const MatrixOut& to) {
      rank.device.copy(*stream, matrix.data(), to.data.raw(), sizeof(float) * static_cast<std::size_t>(matrix.size()));
    };
    const auto get = [&](const MatrixOut& from) {
      Matrix<float> matrix(from.rows, from.cols);
      rank.device.copy(*stream, from.data.raw(), matrix.data(), sizeof(float) * static_cast<std::size_t>(from.size()));
      stream->synchronize();
      return matrix;
    };
    put(qkv, attention.qkv());
    attention.forward(*stream);
    outcome.context = get(attention.context());
    if (context_gradient.size() == 0) return;
    put(context_gradient, attention.context_gradient());
    attention.backward(*stream);
    outcome.qkv_gradient = get(attention.qkv_gradient());
  });
  return outcome;
}

/// The definition, head by head and token by token.
Matrix<double> context_of(const AttentionShape& shape, const Matrix<double>& qkv) {
  Matrix<double> context = Matrix<double>::Zero(shape.tokens(), shape.context_cols());
  const std::int64_t dim = shape.dim;
  for (std::int64_t token = 0; token < shape.tokens(); ++token) {
    const std::int64_t begin = token / shape.sequence * shape.sequence;  // of its sequence
    for (std::int64_t head = 0; head < shape.heads(); ++head) {
      const std::int64_t group = head / shape.queries * (shape.queries + 2);
      const auto vector = [&](std::int64_t row, std::int64_t place) { return qkv.row(row).segment(place * dim, dim); };
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t other = begin; other <= token; ++other) {
        const double score = vector(token, group + head % shape.queries).dot(vector(other, group + shape.queries));
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        sum += weights.back();
      }
      for (std::int64_t other = begin; other <= token; ++other) {
        context.row(token).segment(head * dim, dim) +=
            weights[static_cast<std::size_t>(other - begin)] / sum * vector(other, group + shape.queries + 1);
      }
    }
  }
  return context;
}

// Tokens see themselves and what was before. Scores 0 and ln 3: the second token takes V in proportion 1 : 3.
TEST(Attention, OfTwoTokensIsWhatTheHandFinds) {
  Matrix<float> qkv(2, 3);  // one head of one element: q, k, v
  qkv << 5, 0, 8,           //
      1, std::log(3.0f), 4;
  const Matrix<float> context = attend({1, 2, 1, 1, 1}, qkv).context;
  EXPECT_FLOAT_EQ(context(0, 0), 8);
  EXPECT_FLOAT_EQ(context(1, 0), (8 + 3 * 4) / 4.0f);
}

TEST(Attention, KeepsSequencesAndGroupsApart) {
  // Equal scores: each token's context is the mean of V so far, in its sequence, of its group.
  const AttentionShape shape{2, 3, 2, 2, 1};
  Matrix<float> qkv = Matrix<float>::Zero(6, 8);
  for (int token = 0; token < 6; ++token) {
    qkv(token, 3) = static_cast<float>(token);
    qkv(token, 7) = static_cast<float>(10 * token);
  }
  const Matrix<float> context = attend(shape, qkv).context;
  const float means[] = {0, 0.5f, 1, 3, 3.5f, 4};
  for (int token = 0; token < 6; ++token) {
    for (int head = 0; head < 4; ++head)
      EXPECT_FLOAT_EQ(context(token, head), means[token] * (head < 2 ? 1.0f : 10.0f)) << token << ' ' << head;
  }
}

TEST(Attention, StaysFiniteWhereExponentialsDoNot) {
  Matrix<float> qkv(2, 3);
  qkv << 1000, 1000, 1,  //
      1000, 999, 2;
  EXPECT_FLOAT_EQ(attend({1, 2, 1, 1, 1}, qkv).context(1, 0), 1);
}

const std::vector<AttentionShape> kShapes{{1, 1, 1, 1, 1}, {1, 7, 1, 1, 4}, {2, 5, 2, 3, 8}, {3, 33, 2, 2, 16}};

/// Rounding of the scores, of the exponentials and of sums over the sequence.
double bound_of(const AttentionShape& shape) {
  return static_cast<double>(shape.sequence + shape.dim + 16) * std::numeric_limits<float>::epsilon();
}

TEST(Attention, EqualsTheDefinition) {
  for (const AttentionShape& shape : kShapes) {
    const Matrix<float> qkv = random_matrix<float>(shape.tokens(), shape.qkv_cols());
    const Matrix<double> expected = context_of(shape, qkv.cast<double>());
    EXPECT_LE((attend(shape, qkv).context.cast<double>() - expected).norm(), bound_of(shape) * expected.norm());
  }
}

TEST(Attention, GradientIsThatOfDifferences) {
  for (const AttentionShape& shape : kShapes) {
    if (shape.tokens() > 20) continue;
    const Matrix<float> qkv = random_matrix<float>(shape.tokens(), shape.qkv_cols());
    const Matrix<float> direction = random_matrix<float>(shape.tokens(), shape.context_cols(), 2);
    Matrix<double> expected(qkv.rows(), qkv.cols());
    constexpr double kStep = 1e-5;
    for (std::int64_t i = 0; i < qkv.size(); ++i) {
      const auto loss = [&](double step) {
        Matrix<double> moved = qkv.cast<double>();
        moved.data()[i] += step;
        return context_of(shape, moved).cwiseProduct(direction.cast<double>()).sum();
      };
      expected.data()[i] = (loss(kStep) - loss(-kStep)) / (2 * kStep);
    }
    const Matrix<float> gradient = attend(shape, qkv, direction).qkv_gradient;
    EXPECT_LE((gradient.cast<double>() - expected).norm(), 1e-8 + bound_of(shape) * expected.norm());
  }
}

}  // namespace
}  // namespace canzona::optimized
