// Clients send the arguments of a tool call as JSON text; templates expect the object.
#pragma once

#include <nlohmann/json.hpp>

#include "core/result.h"

namespace replayssm {

// Replaces "arguments" of every call in messages[].tool_calls[] ("function" of the call, or the
// call itself) by the object that its text spells. Empty text and null mean no arguments. What is
// an object already, and everything that does not have this shape, is left as it is. Refuses text
// that is no JSON object, naming the message and the call.
Status parse_tool_call_arguments(nlohmann::ordered_json& messages);

}  // namespace replayssm
