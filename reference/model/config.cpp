#include "reference/model/config.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/core/error.hpp"

namespace canzona {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostLayers = 65536;

json read_json(const std::filesystem::path& path) {
  std::error_code unknown;
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path, unknown)) {
    throw InputError(path.string(), "the file", "missing or unreadable", "a Hugging Face config.json");
  }
  try {
    return json::parse(file);
  } catch (const json::parse_error& error) {
    throw InputError(path.string(), "the text", fmt::format("no JSON from byte {}", error.byte),
                     "a Hugging Face config.json");
  } catch (const json::out_of_range&) {
    throw InputError(path.string(), "a number", "too large for any number type", "a Hugging Face config.json");
  }
}

/// One config.json being read: every complaint names the file and the key.
class ConfigReader {
 public:
  explicit ConfigReader(const std::filesystem::path& path) : path_(path.string()), json_(read_json(path)) {
    if (!json_.is_object()) throw InputError(path_, "the JSON", json_.type_name(), "an object");
    require_word("model_type", "qwen3");
    if (json_.contains("attention_bias") && json_["attention_bias"] != false) reject("attention_bias", "false");
  }

  std::int64_t size(const char* key, std::int64_t most = kLargestSize) const {
    if (!json_.contains(key)) reject(key, allowed_sizes(most));
    const json& value = json_.at(key);
    // Numbers above 2⁶³ are kept as unsigned or as floating point; neither passes as a signed integer in range.
    const bool is_integer =
        value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
    if (!is_integer || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > most)
      reject(key, allowed_sizes(most));
    return value.get<std::int64_t>();
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  bool flag(const char* key, bool standard) const {
    if (!has(key)) return standard;
    if (!json_.at(key).is_boolean()) reject(key, "true, false");
    return json_.at(key).get<bool>();
  }

  [[noreturn]] void reject(const char* key, std::string_view allowed) const {
    throw InputError(path_, fmt::format("'{}'", key), shown(key), allowed);
  }

 private:
  /// A value as it stands in the file; of a list or an object only what it is.
  std::string shown(const char* key) const {
    if (!json_.contains(key)) return "missing";
    const json& value = json_.at(key);
    return value.is_structured() ? value.type_name() : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  static std::string allowed_sizes(std::int64_t most) { return fmt::format("an integer from 1 to {}", most); }

  void require_word(const char* key, const char* word) const {
    if (!json_.contains(key) || json_.at(key) != word) reject(key, fmt::format("\"{}\"", word));
  }

  std::string path_;
  json json_;
};

std::string model_name(const std::filesystem::path& path) {
  if (path.stem() != "config") return path.stem().string();
  const std::string folder = std::filesystem::absolute(path).parent_path().filename().string();
  return folder.empty() ? "config" : folder;
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path) {
  const ConfigReader reader(path);
  ModelConfig config;
  config.name = model_name(path);
  config.origin = path.string();
  config.vocab_size = reader.size("vocab_size");
  config.hidden_size = reader.size("hidden_size");
  config.intermediate_size = reader.size("intermediate_size");
  config.num_hidden_layers = reader.size("num_hidden_layers", kMostLayers);
  config.num_attention_heads = reader.size("num_attention_heads");
  config.num_key_value_heads = reader.size("num_key_value_heads");
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    reader.reject("num_key_value_heads",
                  fmt::format("a divisor of 'num_attention_heads' ({})", config.num_attention_heads));
  }
  if (reader.has("head_dim")) {
    config.head_dim = reader.size("head_dim");
  } else if (config.hidden_size % config.num_attention_heads == 0) {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  } else {
    reader.reject("head_dim", "an integer, since 'num_attention_heads' does not divide 'hidden_size'");
  }
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", false);
  return config;
}

}  // namespace canzona
