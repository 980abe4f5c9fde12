#include "server/json.h"

#include <algorithm>

#include "text/json_text.h"

namespace replayssm::server {
namespace {

// The deepest nesting, as brackets outside of strings show it; right for every text that is JSON.
int nesting_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (nesting_of(text) > kMostNesting) {
    return Error{fmt::format("more than {} arrays and objects inside each other", kMostNesting)};
  }
  return parse_json_text(text);
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace replayssm::server
