// JSON text into documents that keep the order of their members.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/result.h"

namespace replayssm {

// What nlohmann::ordered_json::parse() gives, in time that is linear in the text: its objects look
// every new name up from their first one on, which takes hours for one of a few megabytes. Errors
// say what is wrong and where. Never an exception but for memory.
Result<nlohmann::ordered_json> parse_json_text(std::string_view text);

}  // namespace replayssm
