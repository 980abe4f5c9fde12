// JSON as the server reads and writes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace replayssm::server {

// Members stay in the order they were written in: templates print them, schemas mean it.
using Json = nlohmann::ordered_json;

// Arrays and objects inside each other in a request, at most. Copying and printing a document
// recurses, so that an unlimited one could exhaust the stack.
inline constexpr int kMostNesting = 128;

// One document. Errors: no JSON (with the place), not UTF-8, numbers beyond what a double holds, or
// more than kMostNesting levels. Never an exception.
Result<Json> parse_json(std::string_view text);

// One line. Bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& json);

}  // namespace replayssm::server
