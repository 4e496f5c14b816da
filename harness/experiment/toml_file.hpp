// TOML files read strictly: a key that nobody asked for is an error that names the file and the key.
#pragma once

#include <toml++/toml.h>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace canzona::harness {

/// Throws InputError naming the file, and the line where the text is no TOML.
toml::table read_toml(const std::filesystem::path& path);

/// One table of a file. Getters throw InputError "<file>: '<key>' is <value>, allowed: …".
class TomlTable {
 public:
  TomlTable(const toml::table& table, std::string origin) : table_(table), origin_(std::move(origin)) {}

  bool has(const std::string& key) const { return table_.contains(key); }
  std::string text(const std::string& key);
  std::string text(const std::string& key, const std::string& standard);
  double number(const std::string& key, double low, double high);
  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high);
  std::vector<std::string> texts(const std::string& key);
  std::vector<double> numbers(const std::string& key, double low, double high);
  std::vector<std::vector<double>> rows(const std::string& key, double low, double high);
  TomlTable table(const std::string& key);
  std::vector<TomlTable> tables(const std::string& key);

  /// Call last: throws InputError on a key that no getter asked for.
  void finish() const;

  const std::string& origin() const { return origin_; }

 private:
  std::vector<double> numbers_of(const std::string& key, const toml::node& node, double low, double high) const;
  const toml::node& at(const std::string& key, const char* allowed);
  [[noreturn]] void reject(const std::string& key, const toml::node& value, const std::string& allowed) const;

  const toml::table& table_;
  std::string origin_;
  std::set<std::string> known_;
};

}  // namespace canzona::harness
