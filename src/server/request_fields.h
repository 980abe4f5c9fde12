// Reads the fields of a request body, each by name, type and range, and knows which it has not
// read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/json.h"

namespace replayssm::server {

// A field that is accepted only with the value that means nothing special.
struct NeutralField {
  std::string_view name;
  Json neutral;
};

// The first thing that is wrong is kept; what is read after it is not looked at any more. Null is
// the same as no field. `body` outlives the reader.
class RequestFields {
 public:
  // `prefix` names the object in messages: "sampling_params." for instance.
  explicit RequestFields(const Json& body, std::string prefix = {});

  // Each leaves `target` alone where the field is missing.
  void read(std::string_view name, bool& target);
  void read(std::string_view name, std::string& target);
  void read(std::string_view name, std::optional<double>& target);
  void read(std::string_view name, std::optional<int>& target, int least, int most);
  void read(std::string_view name, int& target, int least, int most);
  // Any whole number of 64 bits; a negative one is taken by its bits.
  void read_seed(std::string_view name, std::optional<std::uint64_t>& target);
  // A text, or a list of at most `most` texts; none of them empty.
  void read_texts(std::string_view name, std::vector<std::string>& target, std::size_t most);
  void read_token_ids(std::string_view name, std::vector<std::int32_t>& target);
  // The value as it is, null where there is none. The type is the caller's to check.
  const Json& take(std::string_view name);

  // Accepted and without effect.
  void ignore(std::initializer_list<std::string_view> names);
  // Accepted with the neutral value only; any other is refused by name.
  void accept_neutral(std::initializer_list<NeutralField> fields);
  // Refuses every field that nothing has named so far.
  void refuse_others();

  void fail(std::string_view name, std::string message);
  void fail(ApiError error);
  bool ok() const { return !error_; }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  // Null where there is nothing to read.
  const Json* find(std::string_view name);
  void refuse_type(std::string_view name, const Json& value, std::string_view accepted);

  const Json& body_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

// A value for an error message, cut where it is long.
std::string shown(const Json& value);

}  // namespace replayssm::server
