// Self-registration: a file that defines an entry adds it at start-up; whoever lists, looks up or
// reports entries finds it there and is never edited.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "reference/core/error.hpp"

namespace canzona {

/// Entries of one type. `Entry` has `name`, `order` (place in lists and tables) and a static `noun`.
template <class Entry>
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  void add(Entry entry) {
    const auto after = [](const Entry& a, const Entry& b) {
      return a.order != b.order ? a.order < b.order : a.name < b.name;
    };
    entries_.insert(std::upper_bound(entries_.begin(), entries_.end(), entry, after), std::move(entry));
  }

  const std::vector<Entry>& all() const { return entries_; }

  /// Throws InputError listing the valid names.
  const Entry& find(std::string_view name) const {
    std::string names;
    for (const Entry& entry : entries_) {
      if (entry.name == name) return entry;
      names += (names.empty() ? "" : ", ") + entry.name;
    }
    throw InputError("", Entry::noun, "'" + std::string(name) + "'", names);
  }

 private:
  std::vector<Entry> entries_;
};

/// `const Registration<Entry> registration{Entry{…}};` at namespace scope registers the entry.
template <class Entry>
struct Registration {
  explicit Registration(Entry entry) { Registry<Entry>::instance().add(std::move(entry)); }
};

}  // namespace canzona
