#include "harness/report/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace canzona::harness {
namespace {

/// Characters, not bytes: titles hold signs like × and ÷.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char byte) { return (byte & 0xc0) != 0x80; }));
}

bool is_figure(const Column& column) { return !column.kind.empty(); }

std::string padded(const std::string& text, std::size_t size, bool right) {
  const std::string space(size - std::min(size, width(text)), ' ');
  return right ? space + text : text + space;
}

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string text = "\"";
  for (const char character : field) text += character == '"' ? std::string("\"\"") : std::string(1, character);
  return text + "\"";
}

/// Whether a column names the row and says the same in every one of several.
bool is_constant_name(const Table& table, std::size_t column) {
  const auto same = [&](const std::vector<std::string>& row) { return row[column] == table.rows.front()[column]; };
  return !is_figure(table.columns[column]) && table.rows.size() > 1 &&
         std::all_of(table.rows.begin(), table.rows.end(), same);
}

}  // namespace

Table without_constant_names(const Table& table) {
  Table shorter;
  shorter.rows.resize(table.rows.size());
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    if (is_constant_name(table, column)) continue;
    shorter.columns.push_back(table.columns[column]);
    for (std::size_t row = 0; row < table.rows.size(); ++row) shorter.rows[row].push_back(table.rows[row][column]);
  }
  return shorter;
}

std::string constant_names(const Table& table) {
  std::string text;
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    if (!is_constant_name(table, column)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", table.columns[column].title, table.rows.front()[column]);
  }
  return text;
}

std::string to_text(const Table& table) {
  std::vector<std::vector<std::string>> lines(2);
  for (const Column& column : table.columns) {
    lines[0].push_back(column.title);
    lines[1].push_back(column.kind);
  }
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  std::string text;
  std::vector<std::size_t> widths(table.columns.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t index = 0; index < line.size(); ++index)
      widths[index] = std::max(widths[index], width(line[index]));
  }
  for (const auto& line : lines) {
    std::string row;
    for (std::size_t index = 0; index < line.size(); ++index) {
      row += (index == 0 ? "" : "  ") + padded(line[index], widths[index], is_figure(table.columns[index]));
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string to_markdown(const Table& table) {
  std::vector<std::string> titles;
  std::vector<std::string> rules;
  for (const Column& column : table.columns) {
    titles.push_back(is_figure(column) ? fmt::format("{} *{}*", column.title, column.kind) : column.title);
    rules.push_back(is_figure(column) ? "---:" : "---");
  }
  std::string text = fmt::format("| {} |\n| {} |\n", fmt::join(titles, " | "), fmt::join(rules, " | "));
  for (const auto& row : table.rows) text += fmt::format("| {} |\n", fmt::join(row, " | "));
  return text;
}

std::string to_csv(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) {
    lines[0].push_back(is_figure(column) ? fmt::format("{} [{}]", column.title, column.kind) : column.title);
  }
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  std::string text;
  for (auto& line : lines) {
    for (std::string& field : line) field = quoted(field);
    text += fmt::format("{}\n", fmt::join(line, ","));
  }
  return text;
}

}  // namespace canzona::harness
