// One table, three ways to write it.
#pragma once

#include <string>
#include <vector>

namespace canzona::harness {

/// A column: what it holds, and the kind of its figures (computed, measured, simulated, emulated, published); empty for
/// columns that name the row.
struct Column {
  std::string title;
  std::string kind;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

/// The table without the columns that name a row and say the same in every row.
Table without_constant_names(const Table& table);

/// What those columns say: "mesh dp 32 × tp 8, optimizer muon".
std::string constant_names(const Table& table);

/// Aligned columns for a terminal; the kind stands under each title.
std::string to_text(const Table& table);
std::string to_markdown(const Table& table);
/// RFC 4180; titles are "title [kind]".
std::string to_csv(const Table& table);

}  // namespace canzona::harness
