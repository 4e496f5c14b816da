// A visitor from lambdas: std::visit(Overloaded{[](const A&) {…}, [](const B&) {…}}, variant).
#pragma once

namespace canzona {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace canzona
