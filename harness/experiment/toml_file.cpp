#include "harness/experiment/toml_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "reference/core/error.hpp"
#include "reference/core/options.hpp"

namespace canzona::harness {

toml::table read_toml(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown))
    throw InputError(path.string(), "the file", "missing or unreadable", "a TOML file");
  try {
    return toml::parse_file(path.string());
  } catch (const toml::parse_error& error) {
    throw InputError(
        fmt::format("{}: line {} is no TOML: {}", path.string(), error.source().begin.line, error.description()));
  }
}

std::string TomlTable::text(const std::string& key) {
  const toml::node& node = at(key, "a text");
  if (!node.is_string()) reject(key, node, "a text");
  return node.as_string()->get();
}

std::string TomlTable::text(const std::string& key, const std::string& standard) {
  known_.insert(key);
  return table_.contains(key) ? text(key) : standard;
}

double TomlTable::number(const std::string& key, double low, double high) {
  const std::string allowed = allowed_values(NumberOption{low, high});
  const toml::node& node = at(key, "a number");
  const auto value = node.value<double>();
  if (!node.is_number() || !value || !(low <= *value) || !(*value <= high)) reject(key, node, allowed);
  return *value;
}

std::int64_t TomlTable::integer(const std::string& key, std::int64_t low, std::int64_t high) {
  const std::string allowed = allowed_values(IntegerOption{low, high});
  const toml::node& node = at(key, "an integer");
  if (!node.is_integer() || node.as_integer()->get() < low || node.as_integer()->get() > high)
    reject(key, node, allowed);
  return node.as_integer()->get();
}

std::vector<std::string> TomlTable::texts(const std::string& key) {
  const toml::node& node = at(key, "a list of texts");
  if (!node.is_array() || node.as_array()->empty()) reject(key, node, "a list of texts, not empty");
  std::vector<std::string> values;
  for (const toml::node& element : *node.as_array()) {
    if (!element.is_string()) reject(key, node, "a list of texts, not empty");
    values.push_back(element.as_string()->get());
  }
  return values;
}

std::vector<double> TomlTable::numbers(const std::string& key, double low, double high) {
  return numbers_of(key, at(key, "a list of numbers"), low, high);
}

std::vector<std::vector<double>> TomlTable::rows(const std::string& key, double low, double high) {
  const toml::node& node = at(key, "a list of lists of numbers");
  if (!node.is_array() || node.as_array()->empty()) reject(key, node, "a list of lists of numbers, not empty");
  std::vector<std::vector<double>> rows;
  for (const toml::node& row : *node.as_array()) rows.push_back(numbers_of(key, row, low, high));
  return rows;
}

std::vector<double> TomlTable::numbers_of(const std::string& key, const toml::node& node, double low,
                                          double high) const {
  const std::string allowed = "a list, not empty, of " + allowed_values(NumberOption{low, high}) + " each";
  if (!node.is_array() || node.as_array()->empty()) reject(key, node, allowed);
  std::vector<double> values;
  for (const toml::node& element : *node.as_array()) {
    const auto value = element.value<double>();
    if (!element.is_number() || !value || !(low <= *value) || !(*value <= high)) reject(key, node, allowed);
    values.push_back(*value);
  }
  return values;
}

TomlTable TomlTable::table(const std::string& key) {
  const toml::node& node = at(key, "a table");
  if (!node.is_table()) reject(key, node, "a table");
  return {*node.as_table(), origin_ + ": " + key};
}

std::vector<TomlTable> TomlTable::tables(const std::string& key) {
  const toml::node& node = at(key, "a list of tables");
  if (!node.is_array() || node.as_array()->empty()) reject(key, node, "a list of tables, not empty");
  std::vector<TomlTable> values;
  for (const toml::node& element : *node.as_array()) {
    if (!element.is_table()) reject(key, node, "a list of tables, not empty");
    values.emplace_back(*element.as_table(), fmt::format("{}: {} {}", origin_, key, values.size() + 1));
  }
  return values;
}

void TomlTable::finish() const {
  for (const auto& [key, value] : table_) {
    if (!known_.contains(std::string(key.str()))) {
      throw InputError(origin_, fmt::format("the key '{}'", key.str()), "unknown",
                       fmt::format("{}", fmt::join(known_, ", ")));
    }
  }
}

const toml::node& TomlTable::at(const std::string& key, const char* allowed) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) throw InputError(origin_, fmt::format("'{}'", key), "missing", allowed);
  return *node;
}

void TomlTable::reject(const std::string& key, const toml::node& value, const std::string& allowed) const {
  std::ostringstream text;
  value.visit([&](const auto& concrete) { text << concrete; });
  throw InputError(origin_, fmt::format("'{}'", key), text.str(), allowed);
}

}  // namespace canzona::harness
