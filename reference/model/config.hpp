// A model's dimensions, read from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace canzona {

/// The dimensions of a dense Qwen3 decoder, under the names that Hugging Face gives them.
struct ModelConfig {
  std::string name;
  std::string origin;  ///< the file it was read from, for messages
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  bool tie_word_embeddings = false;
};

/// Reads `path`. Throws InputError naming the file, the key, its value and what is allowed when the file is
/// missing, is no JSON, describes another architecture, or holds a size that is no positive integer.
/// The model's name is the file's stem, or its folder's name where the file is called config.json.
ModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace canzona
