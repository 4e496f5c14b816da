#include "optimized/engine/board.hpp"

#include <fmt/format.h>

namespace canzona::optimized {
namespace {

/// The name of the kind-th alternative of Action.
template <std::size_t... Kinds>
std::string name_of_kind(std::size_t kind, std::index_sequence<Kinds...>) {
  std::string name;
  ((kind == Kinds ? void(name = describe(Action(std::in_place_index<Kinds>))) : void()), ...);
  return name.substr(0, name.find('('));
}

}  // namespace

std::string Board::describe(int rank) const {
  std::string text;
  for (const auto stream : {canzona::Stream::compute, canzona::Stream::dp, canzona::Stream::tp}) {
    const int place = places_[index(rank, stream)];
    if (place == 0) continue;
    text += fmt::format(
        "{} {} on {}", text.empty() ? "" : ",",
        name_of_kind(static_cast<std::size_t>(place - 1), std::make_index_sequence<std::variant_size_v<Action>>()),
        name_of(stream));
  }
  return fmt::format("rank {}:{}", rank, text.empty() ? " before its first step" : text);
}

}  // namespace canzona::optimized
