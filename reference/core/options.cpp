#include "reference/core/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "reference/core/error.hpp"
#include "reference/core/overloaded.hpp"

namespace canzona {
namespace {

void check(const OptionDescription& option, const std::string& value, const std::string& key) {
  std::visit(Overloaded{[&](const WordOption& kind) {
                          for (const std::string& word : kind.words) {
                            if (word == value) return;
                          }
                          throw InputError("", key, "'" + value + "'", allowed_values(option.kind));
                        },
                        [&](const NumberOption& kind) { parse_number(key, value, kind.low, kind.high); },
                        [&](const IntegerOption& kind) { parse_integer(key, value, kind.low, kind.high); },
                        [&](const TextOption& kind) { kind.check(value); }},
             option.kind);
}

template <class Number>
Number parse_whole(std::string_view key, std::string_view text, Number low, Number high, std::string_view allowed) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // `!(low <= value)` and not `value < low`: NaN is outside every range.
  if (error != std::errc{} || end != text.data() + text.size() || !(low <= value) || !(value <= high)) {
    throw InputError("", key, fmt::format("'{}'", text), allowed);
  }
  return value;
}

}  // namespace

std::string allowed_values(const OptionKind& kind) {
  return std::visit(
      Overloaded{
          [](const WordOption& words) { return fmt::format("{}", fmt::join(words.words, ", ")); },
          [](const NumberOption& range) { return fmt::format("a number from {} to {}", range.low, range.high); },
          [](const IntegerOption& range) { return fmt::format("an integer from {} to {}", range.low, range.high); },
          [](const TextOption& text) { return text.form; }},
      kind);
}

Options::Options(const std::vector<OptionDescription>& descriptions, const std::map<std::string, std::string>& given,
                 std::string_view origin) {
  std::vector<std::string> names;
  for (const OptionDescription& option : descriptions) {
    values_[option.name] = option.standard;
    names.push_back(option.name);
  }
  for (const auto& [name, value] : given) {
    if (!values_.contains(name)) {
      throw InputError(origin, "option", "'" + name + "'",
                       names.empty() ? "none, it has no options" : fmt::format("{}", fmt::join(names, ", ")));
    }
    values_[name] = value;
  }
  for (const OptionDescription& option : descriptions) {
    check(option, values_[option.name], fmt::format("{}: {}", origin, option.name));
  }
}

const std::string& Options::text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw Error("option '" + name + "' was never described");
  return found->second;
}

double Options::number(const std::string& name) const { return parse_number(name, text(name), -HUGE_VAL, HUGE_VAL); }

std::int64_t Options::integer(const std::string& name) const {
  return parse_integer(name, text(name), INT64_MIN, INT64_MAX);
}

std::int64_t parse_integer(std::string_view key, std::string_view text, std::int64_t low, std::int64_t high) {
  return parse_whole<std::int64_t>(key, text, low, high, allowed_values(IntegerOption{low, high}));
}

double parse_number(std::string_view key, std::string_view text, double low, double high) {
  return parse_whole<double>(key, text, low, high, allowed_values(NumberOption{low, high}));
}

}  // namespace canzona
