#include "reference/model/layer_work.hpp"

#include <gtest/gtest.h>

#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

/// "qkv forward", "attention", "sum 4096", …
std::string describe(const Model& model, const LayerOperation& operation) {
  return std::visit(Overloaded{[&](const WeightProduct& own) {
                                 const std::string& name = model.parameters[own.parameter].name;
                                 const std::size_t end = name.rfind(".weight"), begin = name.rfind('.', end - 1) + 1;
                                 const Product& product = own.product;
                                 return name.substr(begin, end - begin) + ' ' + std::to_string(product.m) + ' ' +
                                        std::to_string(product.n) + ' ' + std::to_string(product.k);
                               },
                               [](const AttentionPass& own) {
                                 return std::string(own.is_backward ? "attention backward" : "attention");
                               },
                               [](const ReduceActivations& own) { return "reduce " + std::to_string(own.elements); }},
                    operation);
}

using Words = std::vector<std::string>;

Words describe(const Model& model, const std::vector<LayerOperation>& operations) {
  Words words;
  for (const LayerOperation& operation : operations) words.push_back(describe(model, operation));
  return words;
}

// qwen3-tiny: hidden 64, 16 query and 8 key/value heads of 8, feed-forward 192, vocabulary 512, tied.
TEST(LayerWork, IsMegatronsOrderWithTwoReductionsEachWay) {
  const Model model = build_model(harness::find_model("qwen3-tiny"), 2);
  const LayerWork work = layer_work(model, 1, 2, 32, 16);
  EXPECT_EQ(describe(model, work.forward),
            (Words{"linear_qkv 32 128 64", "attention", "linear_proj 32 64 64", "reduce 2048", "linear_fc1 32 192 64",
                   "linear_fc2 32 64 96", "reduce 2048"}));
  EXPECT_EQ(describe(model, work.backward),
            (Words{"linear_fc2 32 96 64", "linear_fc2 64 96 32", "linear_fc1 32 64 192", "reduce 2048",
                   "linear_fc1 192 64 32", "linear_proj 32 64 64", "linear_proj 64 64 32", "attention backward",
                   "linear_qkv 32 64 128", "reduce 2048", "linear_qkv 128 64 32"}));
  EXPECT_TRUE(layer_work(model, 0, 2, 32, 16).forward.empty());
  const LayerWork output = layer_work(model, 3, 2, 32, 16);
  EXPECT_EQ(describe(model, output.forward), Words{"word_embeddings 32 256 64"});
  EXPECT_EQ(describe(model, output.backward),
            (Words{"word_embeddings 32 64 256", "reduce 2048", "word_embeddings 256 64 32"}));
}

TEST(LayerWork, NothingIsReducedWithoutTensorParallelism) {
  const Model model = build_model(harness::find_model("qwen3-tiny"), 1);
  for (int layer = 0; layer <= model.layers + 1; ++layer) {
    const LayerWork work = layer_work(model, layer, 1, 32, 16);
    for (const auto* operations : {&work.forward, &work.backward}) {
      for (const LayerOperation& operation : *operations)
        EXPECT_FALSE(std::holds_alternative<ReduceActivations>(operation));
    }
  }
}

// 2 sequences of 16, over 2 ranks 4 groups of 2 query heads: 8 stacks of 32 × 16 scores.
TEST(LayerWork, AttentionIsFourTimesItsScoresForwardAndTenTimesBackward) {
  const Model model = build_model(harness::find_model("qwen3-tiny"), 2);
  const LayerWork work = layer_work(model, 1, 2, 32, 16);
  const auto flops = [](const AttentionPass& pass) {
    std::int64_t sum = 0;
    for (const Product& own : pass.products()) sum += 2 * own.m * own.n * own.k * own.count;
    return sum;
  };
  const auto forward = std::get<AttentionPass>(work.forward[1]);
  const std::int64_t scores = 8 * 32 * 16;
  EXPECT_EQ(forward.shape.scores(), scores);
  EXPECT_EQ(flops(forward), 4 * scores * 8);
  EXPECT_EQ(flops(std::get<AttentionPass>(work.backward[7])), 10 * scores * 8);
  EXPECT_EQ(forward.softmax_elements(), 5 * scores);
}

TEST(LayerWork, RefusesPartsOfSequences) {
  const Model model = build_model(harness::find_model("qwen3-tiny"), 1);
  try {
    layer_work(model, 1, 1, 100, 48);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("100"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("48"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace canzona
