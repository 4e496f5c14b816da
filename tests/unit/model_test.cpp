#include "reference/model/model.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/experiment/paths.hpp"
#include "reference/core/error.hpp"
#include "reference/model/shard.hpp"
#include "tests/support.hpp"

namespace canzona {
namespace {

using harness::find_model;

struct Published {
  const char* name;
  std::int64_t total;
  std::int64_t matrices;
};

// Parameter counts of the released checkpoints, to the last digit.
constexpr Published kPublished[] = {
    {"qwen3-0.6b", 596'049'920, 440'401'920},      {"qwen3-1.7b", 1'720'574'976, 1'409'286'144},
    {"qwen3-4b", 4'022'468'096, 3'633'315'840},    {"qwen3-8b", 8'190'735'360, 6'945'767'424},
    {"qwen3-14b", 14'768'307'200, 13'212'057'600}, {"qwen3-32b", 32'762'123'264, 31'205'621'760},
};

TEST(Model, HasThePublishedParameterCountsWhateverTheTensorParallelism) {
  for (const Published& published : kPublished) {
    for (const int tp : {1, 2, 4, 8}) {
      const Model model = build_model(find_model(published.name), tp);
      EXPECT_EQ(model.parameter_count(), published.total) << published.name << " tp " << tp;
      EXPECT_EQ(model.matrix_parameter_count(), published.matrices) << published.name << " tp " << tp;
    }
  }
}

const Parameter& find(const Model& model, const std::string& name) {
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name == name) return parameter;
  }
  throw Error("no " + name);
}

TEST(Model, StoresQwen3_32BAsMegatronDoes) {
  const Model model = build_model(find_model("qwen3-32b"), 8);
  EXPECT_EQ(find(model, "decoder.layers.0.self_attention.linear_qkv.weight").shape, (Shape{10240, 5120}));
  EXPECT_EQ(find(model, "decoder.layers.0.self_attention.linear_proj.weight").shape, (Shape{5120, 8192}));
  EXPECT_EQ(find(model, "decoder.layers.63.mlp.linear_fc1.weight").shape, (Shape{51200, 5120}));
  EXPECT_EQ(find(model, "decoder.layers.63.mlp.linear_fc2.weight").shape, (Shape{5120, 25600}));
  EXPECT_EQ(find(model, "embedding.word_embeddings.weight").shape, (Shape{152576, 5120}));  // 151936 padded to 128·8
  EXPECT_EQ(find(model, "output_layer.weight").padding_rows, 640);
  EXPECT_EQ(model.parameters.size(), 64u * 8 + 3);
}

TEST(Model, TiedEmbeddingsAreOneParameter) {
  const Model model = build_model(find_model("qwen3-4b"), 1);
  EXPECT_THROW(find(model, "output_layer.weight"), Error);
  EXPECT_EQ(model.parameters.size(), 36u * 8 + 2);
}

TEST(Model, RoutesOnlyDecoderWeightMatricesToTheMatrixOptimizer) {
  const Model model = build_model(find_model("qwen3-tiny"), 1);
  for (const Parameter& parameter : model.parameters) {
    const bool is_linear = parameter.name.find("linear_") != std::string::npos && parameter.name.ends_with(".weight");
    EXPECT_EQ(parameter.routing == Routing::matrix, is_linear) << parameter.name;
  }
}

TEST(Shard, Fc1HoldsAShareOfGateOverAShareOfUp) {
  // qwen3-tiny: 192 gate rows over 192 up rows. On 4 ranks, rank 1 holds gate 48…95 and up 192 + 48…95.
  const Model model = build_model(find_model("qwen3-tiny"), 4);
  const Parameter& fc1 = find(model, "decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_EQ(shard_shape(fc1, 4), (Shape{96, 64}));
  EXPECT_EQ(whole_row(fc1, 4, 1, 0), 48);
  EXPECT_EQ(whole_row(fc1, 4, 1, 47), 95);
  EXPECT_EQ(whole_row(fc1, 4, 1, 48), 240);
  EXPECT_EQ(whole_row(fc1, 4, 1, 95), 287);
}

TEST(Shard, PlacingAllShardsRebuildsTheWhole) {
  const Model model = build_model(find_model("qwen3-tiny"), 8);
  for (const Parameter& parameter : model.parameters) {
    Matrix<float> whole(parameter.shape.rows, parameter.shape.cols);
    std::iota(whole.data(), whole.data() + whole.size(), 0.0f);
    Matrix<float> rebuilt = Matrix<float>::Constant(whole.rows(), whole.cols(), -1);
    for (int rank = 0; rank < 8; ++rank) {
      std::vector<float> shard(static_cast<std::size_t>(shard_shape(parameter, 8).numel()));
      take_shard(whole, parameter, 8, rank, shard.data());
      place_shard(shard.data(), parameter, 8, rank, rebuilt);
    }
    EXPECT_EQ(whole, rebuilt) << parameter.name;
  }
}

TEST(Block, RowsOfAnInterleavedBlockAreTakenAndPutBackInOrder) {
  Matrix<float> whole(6, 1);
  whole << 0, 1, 2, 3, 4, 5;
  const Block every_second{"q", {{0, 1}, {2, 3}, {4, 5}}};
  Matrix<float> rows = take_block(whole, every_second);
  EXPECT_EQ(rows, (Matrix<float>(3, 1) << 0, 2, 4).finished());
  rows *= 10;
  place_block(rows, every_second, whole);
  EXPECT_EQ(whole, (Matrix<float>(6, 1) << 0, 1, 20, 3, 40, 5).finished());
}

std::string complaint_about(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(Model, RefusesTensorParallelismThatDoesNotDivide) {
  const ModelConfig config = find_model("qwen3-32b");
  EXPECT_EQ(complaint_about([&] { build_model(config, 16); }),
            config.origin + ": tp is 16, allowed: at most 'num_key_value_heads' (8)");
  EXPECT_EQ(complaint_about([&] { build_model(config, 3); }),
            config.origin + ": tp is 3, allowed: a divisor of 'num_key_value_heads' (8)");
}

class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() : path_(testing_support::own_path(".json")) {
    std::ifstream file(harness::project_folder() / "experiments/models/qwen3-tiny.json");
    json_ = nlohmann::json::parse(file);
  }
  ~ConfigFile() override { std::filesystem::remove(path_); }

  std::string complaint(const std::string& text) {
    std::ofstream(path_) << text;
    std::string message = complaint_about([&] { build_model(read_model_config(path_), 1); });
    const std::size_t at = message.find(path_.string() + ": ");
    return at == 0 ? message.substr(path_.string().size() + 2) : message;
  }
  std::string complaint() { return complaint(json_.dump()); }

  std::filesystem::path path_;
  nlohmann::json json_;
};

TEST_F(ConfigFile, OfAnySizeIsReadAndMissingHeadDimIsDerived) {
  json_["head_dim"] = nullptr;
  EXPECT_EQ(complaint(), "none");
  EXPECT_EQ(read_model_config(path_).head_dim, 4);
}

TEST_F(ConfigFile, ComplaintsNameTheKeyItsValueAndWhatIsAllowed) {
  const std::string sizes = ", allowed: an integer from 1 to 1099511627776";
  const std::pair<nlohmann::json, std::string> bad[] = {{0, "0"},         {-64, "-64"},      {64.5, "64.5"},
                                                        {"64", "\"64\""}, {nullptr, "null"}, {true, "true"}};
  for (const auto& [value, shown] : bad) {
    json_["hidden_size"] = value;
    EXPECT_EQ(complaint(), "'hidden_size' is " + shown + sizes);
  }
  json_.erase("hidden_size");
  EXPECT_EQ(complaint(), "'hidden_size' is missing" + sizes);
}

TEST_F(ConfigFile, OverflowingNumbersAreRefused) {
  std::string text = json_.dump();
  const std::string key = "\"hidden_size\":64";
  text.replace(text.find(key), key.size(), "\"hidden_size\":99999999999999999999");
  EXPECT_EQ(complaint(text), "'hidden_size' is 1e+20, allowed: an integer from 1 to 1099511627776");
  json_["hidden_size"] = std::int64_t{1} << 40;
  json_["intermediate_size"] = std::int64_t{1} << 40;
  EXPECT_EQ(
      complaint(),
      "the model's size is beyond 64 bits (hidden_size 1099511627776, intermediate_size 1099511627776, vocab_size 512, "
      "num_hidden_layers 2), allowed: products and sums below 2⁶³");
  const std::string enormous = "{\"model_type\":\"qwen3\",\"hidden_size\":1e999}";
  EXPECT_EQ(complaint(enormous), "a number is too large for any number type, allowed: a Hugging Face config.json");
}

TEST_F(ConfigFile, ForeignTruncatedAndMissingFilesAreRefused) {
  EXPECT_EQ(complaint(json_.dump().substr(0, 40)).substr(0, 26), "the text is no JSON from b");
  EXPECT_EQ(complaint("[1]"), "the JSON is array, allowed: an object");
  json_["model_type"] = nlohmann::json::array({1, 2});
  EXPECT_EQ(complaint(), "'model_type' is array, allowed: \"qwen3\"");
  json_["model_type"] = "llama";
  EXPECT_EQ(complaint(), "'model_type' is \"llama\", allowed: \"qwen3\"");
  json_.erase("model_type");
  EXPECT_EQ(complaint(), "'model_type' is missing, allowed: \"qwen3\"");
  EXPECT_EQ(complaint_about([] { read_model_config("no/such.json"); }),
            "no/such.json: the file is missing or unreadable, allowed: a Hugging Face config.json");
}

TEST_F(ConfigFile, WithBiasesIsRefused) {
  json_["attention_bias"] = true;
  EXPECT_EQ(complaint(), "'attention_bias' is true, allowed: false");
}

TEST_F(ConfigFile, HeadsThatDoNotGroupAreRefused) {
  json_["num_key_value_heads"] = 3;
  EXPECT_EQ(complaint(), "'num_key_value_heads' is 3, allowed: a divisor of 'num_attention_heads' (16)");
}

}  // namespace
}  // namespace canzona
