// Named options with defaults: how a strategy or an optimizer describes what can be set, and
// how what a person gave is checked against that description.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace canzona {

/// One of a list of words.
struct WordOption {
  std::vector<std::string> words;
};
/// A finite number in [low, high].
struct NumberOption {
  double low;
  double high;
};
/// An integer in [low, high].
struct IntegerOption {
  std::int64_t low;
  std::int64_t high;
};
/// Text in a form of its own: `check` throws InputError when a value is not in it.
struct TextOption {
  std::string form;
  std::function<void(const std::string&)> check;
};
using OptionKind = std::variant<WordOption, NumberOption, IntegerOption, TextOption>;

struct OptionDescription {
  std::string name;
  OptionKind kind;
  std::string standard;  ///< the default, written as a person would write it
  std::string unit;      ///< empty when the option has none
  std::string help;
};

/// What `kind` allows, in words.
std::string allowed_values(const OptionKind& kind);

/// Values for a list of described options. Getters take only names that were described.
class Options {
 public:
  Options() = default;

  /// Defaults overridden by `given`. Throws InputError on a name that is not described or a value that
  /// is not allowed; the message starts with `origin`.
  Options(const std::vector<OptionDescription>& descriptions, const std::map<std::string, std::string>& given,
          std::string_view origin);

  const std::string& text(const std::string& name) const;
  double number(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  bool is(const std::string& name, std::string_view word) const { return text(name) == word; }

  /// Name → value, defaults included.
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
};

/// Strict decimal numbers: the whole text, finite, in range. Throws InputError "<key> is '<text>', allowed: …".
std::int64_t parse_integer(std::string_view key, std::string_view text, std::int64_t low, std::int64_t high);
double parse_number(std::string_view key, std::string_view text, double low, double high);

}  // namespace canzona
