#include "reference/core/error.hpp"

#include <fmt/format.h>

namespace canzona {

InputError::InputError(std::string_view origin, std::string_view key, std::string_view value, std::string_view allowed)
    : Error(fmt::format("{}{}{} is {}, allowed: {}", origin, origin.empty() ? "" : ": ", key, value, allowed)) {}

}  // namespace canzona
