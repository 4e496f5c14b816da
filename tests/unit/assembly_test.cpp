// Rectangles between shards and stacks: by hand, and against placing shards and taking blocks.
#include "optimized/engine/assembly.hpp"

#include "reference/model/shard.hpp"
#include "tests/support.hpp"

namespace canzona::optimized {
namespace {

std::vector<const Block*> blocks_of(const Parameter& parameter) {
  std::vector<const Block*> blocks;
  for (const Block& block : parameter.blocks) blocks.push_back(&block);
  return blocks;
}

TEST(Assembly, AMatrixCutByColumnsIsOneRectangleARank) {
  // 3 × 4 over two ranks: each holds 3 × 2.
  const Model model = testing_support::model_of({{{3, 4}}});
  const Parameter& parameter = model.parameters[0];
  const std::vector<Rectangle> expected{{0, 0, 3, 2, 2, 4}, {6, 2, 3, 2, 2, 4}};
  EXPECT_EQ(rectangles_of(parameter, 2, blocks_of(parameter)), expected);
  const std::vector<Rectangle> whole{{0, 0, 3, 4, 4, 4}};
  EXPECT_EQ(rectangles_of(parameter, 1, blocks_of(parameter)), whole);
}

// For every parameter of a model whose heads, gate and up are blocks, and whose rows interleave: what rectangles bring
// into a stack are the blocks, and what they take back is the shards.
TEST(Assembly, BringsBlocksTogetherAndTakesThemApart) {
  for (const int tp : {1, 2, 4}) {
    const Model model = build_model(harness::find_model("qwen3-tiny"), tp, {BlockSplit::Qkv::per_head, true});
    for (const Parameter& parameter : model.parameters) {
      if (parameter.routing != Routing::matrix) continue;
      const Matrix<float> whole = testing_support::random_matrix<float>(parameter.shape.rows, parameter.shape.cols, 1);
      const std::int64_t count = shard_shape(parameter, tp).numel();
      std::vector<float> shards(static_cast<std::size_t>(tp * count));
      for (int rank = 0; rank < tp; ++rank) take_shard(whole, parameter, tp, rank, shards.data() + rank * count);
      std::vector<float> stack(static_cast<std::size_t>(parameter.shape.numel()));
      std::vector<float> back(shards.size());
      for (const Rectangle& own : rectangles_of(parameter, tp, blocks_of(parameter))) {
        for (std::int64_t row = 0; row < own.rows; ++row) {
          for (std::int64_t col = 0; col < own.width; ++col) {
            const auto shard = static_cast<std::size_t>(own.shard + row * own.shard_pitch + col);
            const auto place = static_cast<std::size_t>(own.stack + row * own.stack_pitch + col);
            stack[place] = shards[shard];
            back[shard] = stack[place];
          }
        }
      }
      const float* next = stack.data();
      for (const Block& block : parameter.blocks) {
        const Matrix<float> expected = take_block(whole, block);
        EXPECT_EQ(Eigen::Map<const Matrix<float>>(next, expected.rows(), expected.cols()), expected) << parameter.name;
        next += expected.size();
      }
      EXPECT_EQ(back, shards) << parameter.name;
    }
  }
}

}  // namespace
}  // namespace canzona::optimized
