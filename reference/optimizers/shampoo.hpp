// What Shampoo's options stand for: the engine's Shampoo reads them here too.
#pragma once

#include "reference/core/options.hpp"
#include "reference/optimizers/inverse_root.hpp"

namespace canzona::reference {

/// Throws InputError when coupled iterations are asked for a root that is no integer.
RootMethod shampoo_root_method(const Options& options);

/// Whose norm an update gets: its own, that of the filtered gradient, Adam's.
enum class Grafting { none, sgd, adam };
Grafting shampoo_grafting(const Options& options);

}  // namespace canzona::reference
