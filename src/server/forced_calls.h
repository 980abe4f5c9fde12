// Tools whose calls the grammar holds to something: with tool_choice "required" and a named tool it
// makes sure that there is a call, with "auto" that calls of strict tools fit their parameters.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "server/chat_request.h"

namespace replayssm::server {

// The answer is the arguments of that tool, a JSON object that fits its parameters. Precondition:
// `tools` has one of that name.
OutputFormat named_call_format(const Json& tools, std::string_view name);

// The answer is [{"name": NAME, "arguments": {..}}, ..] with at least one call, exactly one unless
// `several`; the arguments fit the tool's parameters.
OutputFormat required_call_format(const Json& tools, bool several);

// `tools` as the grammar of calls in the model's own format takes them.
std::vector<grammar::CallableTool> callable_tools(const Json& tools);

}  // namespace replayssm::server
