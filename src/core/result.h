// Errors are values inside the engine: a function that can fail returns Result<T>, and its error
// names the field, the value it had and what would be accepted.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace replayssm {

// Why an operation was refused, as one line for a person.
struct Error {
  std::string message;
};

// "FIELD: VALUE is not accepted; expected ACCEPTED".
template <class Value>
Error refuse(std::string_view field, const Value& value, std::string_view accepted) {
  return Error{fmt::format("{}: {} is not accepted; expected {}", field, value, accepted)};
}

// Either a T or the Error that prevented it. Owns whichever it holds.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Precondition: ok(). std::bad_variant_access otherwise.
  T& value() & { return std::get<0>(held_); }
  const T& value() const& { return std::get<0>(held_); }
  T&& value() && { return std::get<0>(std::move(held_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Precondition: !ok().
  const Error& error() const { return std::get<1>(held_); }

 private:
  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_.value(); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace replayssm

// Returns the error of a Status expression from the enclosing function.
#define REPLAYSSM_TRY(expression)                                       \
  do {                                                                  \
    if (auto replayssm_status = (expression); !replayssm_status.ok()) { \
      return replayssm_status.error();                                  \
    }                                                                   \
  } while (false)
