// The exception hierarchy. Everything thrown across a floor derives from Error.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace canzona {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something a person gave is not allowed. The command ends with exit code 2.
class InputError : public Error {
 public:
  using Error::Error;

  /// "<origin>: <key> is <value>, allowed: <allowed>". `origin` is a file or an option; it may be empty.
  InputError(std::string_view origin, std::string_view key, std::string_view value, std::string_view allowed);
};

/// Sizes whose sum or product does not fit 64 bits. Whoever knows where they came from says so.
class OverflowError : public InputError {
 public:
  using InputError::InputError;
};

/// A plan or a schedule breaks one of its rules, or cannot be executed.
class PlanError : public Error {
 public:
  using Error::Error;
};

}  // namespace canzona
