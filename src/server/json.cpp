#include "server/json.h"

#include <algorithm>

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

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the bracket.
std::string words_of(const Json::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (nesting_of(text) > kMostNesting) {
    return Error{fmt::format("more than {} arrays and objects inside each other", kMostNesting)};
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    return Error{words_of(error)};
  }
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace replayssm::server
