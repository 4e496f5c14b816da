// Two forms of functors for elementwise work. One is given an element's index: functor(i). The other states its
// operands and is given an element of each, so that a GPU can fetch and store neighbours 16 bytes at a time:
//   CANZONA_OPERANDS(from, Out{to})
//   CANZONA_KERNEL void operator()(float own_from, float& own_to) const;
// An operand is a pointer, to const where it is only read, or an Out where it is only written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "optimized/device/target.hpp"

#define CANZONA_OPERANDS(...)                              \
  template <class Visit>                                   \
  CANZONA_KERNEL auto operands(const Visit& visit) const { \
    return visit(__VA_ARGS__);                             \
  }

namespace canzona::optimized {
inline namespace CANZONA_TARGET {

template <class T>
struct Out {
  T* values;
};
template <class T>
Out(T*) -> Out<T>;

/// What a functor reads from the device's memory before its first element, where it has something to load().
template <class Functor>
CANZONA_KERNEL Functor loaded(Functor functor) {
  if constexpr (requires { functor.load(); }) functor.load();
  return functor;
}

namespace operand {

template <class T>
CANZONA_KERNEL T* values(T* operand) {
  return operand;
}
template <class T>
CANZONA_KERNEL T* values(Out<T> operand) {
  return operand.values;
}

/// Neighbours in registers.
template <class T, int width>
struct alignas(std::min<std::size_t>(16, width * sizeof(T))) Pack {
  T values[width];
};

template <int width, class T>
CANZONA_KERNEL Pack<std::remove_const_t<T>, width> fetch(T* operand, std::int64_t i) {
  return *reinterpret_cast<const Pack<std::remove_const_t<T>, width>*>(operand + i);
}
template <int width, class T>
CANZONA_KERNEL Pack<T, width> fetch(Out<T>, std::int64_t) {
  return {};
}

template <class T, int width>
CANZONA_KERNEL void keep(const T*, std::int64_t, const Pack<T, width>&) {}
template <class T, int width>
CANZONA_KERNEL void keep(T* operand, std::int64_t i, const Pack<T, width>& pack) {
  *reinterpret_cast<Pack<T, width>*>(operand + i) = pack;
}
template <class T, int width>
CANZONA_KERNEL void keep(Out<T> operand, std::int64_t i, const Pack<T, width>& pack) {
  keep(operand.values, i, pack);
}

/// Elements that fill 16 bytes: of fp32, or of two bytes where an operand has them.
struct Width {
  template <class... Operands>
  constexpr auto operator()(Operands... all) const {
    return std::integral_constant < int, ((sizeof(*values(all)) < sizeof(float)) || ...) ? 8 : 4 > {};
  }
};

}  // namespace operand

template <class Functor>
concept HasOperands = requires(const Functor& functor) {
  functor.operands(operand::Width{});
};

/// Elements that are visited at once where operands are aligned.
template <HasOperands Functor>
constexpr int kPackWidth = decltype(std::declval<const Functor&>().operands(operand::Width{}))::value;

template <HasOperands Functor>
bool is_aligned(const Functor& functor) {
  return functor.operands(
      [](auto... all) { return ((reinterpret_cast<std::uintptr_t>(operand::values(all)) % 16 == 0) && ...); });
}

/// One element.
template <class Functor>
CANZONA_KERNEL void visit(Functor& functor, std::int64_t i) {
  if constexpr (HasOperands<Functor>) {
    functor.operands([&](auto... all) { functor(operand::values(all)[i]...); });
  } else {
    functor(i);
  }
}

/// As many as a pack has, from i on.
template <HasOperands Functor>
CANZONA_KERNEL void visit_pack(const Functor& functor, std::int64_t i) {
  constexpr int kWidth = kPackWidth<Functor>;
  functor.operands([&](auto... all) {
    const auto visit_fetched = [&](auto... pack) {
      for (int lane = 0; lane < kWidth; ++lane) functor(pack.values[lane]...);
      (operand::keep(all, i, pack), ...);
    };
    visit_fetched(operand::fetch<kWidth>(all, i)...);
  });
}

/// Those of a range, on the host.
template <class Functor>
void visit_range(Functor& functor, std::int64_t begin, std::int64_t end) {
  if constexpr (HasOperands<Functor>) {
    functor.operands([&](auto... all) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) functor(operand::values(all)[i]...);
    });
  } else {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) functor(i);
  }
}

}  // namespace CANZONA_TARGET
}  // namespace canzona::optimized
