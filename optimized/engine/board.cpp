#include "optimized/engine/board.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "reference/core/overloaded.hpp"

namespace canzona::optimized {
namespace {

constexpr int kArgumentBits = 32;

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

/// Calls function(argument) with the number that tells a step from others of its kind.
template <class AnyAction, class Function>
void with_argument(AnyAction& action, const Function& function) {
  std::visit(Overloaded{[&](auto& step) requires requires { step.layer;
}
{ function(step.layer); }
, [&](auto& step) requires requires { step.bucket; }
{ function(step.bucket); }
, [&](auto& step) requires requires { step.group; }
{ function(step.group); }
, [&](auto& step) requires requires { step.parameter; }
{ function(step.parameter); }
, [&](auto& step) requires requires { step.over_tp; }
{ function(step.over_tp); }
}  // namespace
,
             action);
}  // namespace canzona::optimized

/// 1 + the kind above the argument.
std::int64_t packed(const Action& action) {
  std::int64_t argument = 0;
  with_argument(action, [&](const auto& own) { argument = static_cast<std::int64_t>(own); });
  return (static_cast<std::int64_t>(action.index() + 1) << kArgumentBits) + argument;
}

template <std::size_t... Kinds>
Action unpacked(std::int64_t step, std::index_sequence<Kinds...>) {
  const auto kind = static_cast<std::size_t>((step >> kArgumentBits) - 1);
  Action action;
  ((kind == Kinds ? void(action = Action(std::in_place_index<Kinds>)) : void()), ...);
  with_argument(action, [&](auto& own) {
    own = static_cast<std::remove_reference_t<decltype(own)>>(step & ((std::int64_t{1} << kArgumentBits) - 1));
  });
  return action;
}

}  // namespace

void Board::publish(int rank, canzona::Stream stream, const Action& action) {
  Place* own = place(rank);
  own->steps[static_cast<std::size_t>(stream)] = packed(action);
  own->heard = now();
}

void Board::hear(int rank) { place(rank)->heard = now(); }

std::string Board::describe(int rank) const {
  if (place(rank) == nullptr) return fmt::format("rank {}, on another machine", rank);
  std::string text;
  for (const auto stream : {canzona::Stream::compute, canzona::Stream::dp, canzona::Stream::tp}) {
    const std::int64_t step = place(rank)->steps[static_cast<std::size_t>(stream)];
    if (step == 0) continue;
    text += fmt::format("{} {} on {}", text.empty() ? "" : ",",
                        canzona::describe(unpacked(step, std::make_index_sequence<std::variant_size_v<Action>>())),
                        name_of(stream));
  }
  return fmt::format("rank {}:{}", rank, text.empty() ? " before its first step" : text);
}

std::vector<int> Board::silent(double seconds) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank] == nullptr) continue;
    if (static_cast<double>(now() - places_[rank]->heard) * 1e-9 > seconds) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

Watch make_watch(Board& board, int rank, const std::vector<int>& group, double deadline_seconds) {
  const auto describe = [&board, rank, group, deadline_seconds](const std::vector<int>& missing) {
    std::vector<std::string> waited_for, silent;
    for (const int member : missing) waited_for.push_back(board.describe(group[static_cast<std::size_t>(member)]));
    // Those who wait say that they live: who has been silent for most of the deadline holds up all.
    const std::vector<int> not_heard = board.silent(0.75 * deadline_seconds);
    for (const int other : missing.empty() ? (not_heard.empty() ? group : not_heard) : std::vector<int>{}) {
      if (other != rank) waited_for.push_back(board.describe(other));
    }
    for (const int other : not_heard) {
      std::string text = board.describe(other);
      if (std::count(waited_for.begin(), waited_for.end(), text) == 0) silent.push_back(std::move(text));
    }
    const std::string text = fmt::format("{}", fmt::join(waited_for, "; "));
    return silent.empty() ? text : fmt::format("{} (silent: {})", text, fmt::join(silent, "; "));
  };
  return {.deadline_seconds = deadline_seconds, .alive = [&board, rank] { board.hear(rank); }, .describe = describe};
}

}  // namespace canzona::optimized
