// The body of a tool call, in the formats of --tool-call-parser, into a program.
#pragma once

#include <span>
#include <string_view>

#include "core/result.h"
#include "grammar/grammar.h"
#include "grammar/program.h"

namespace replayssm::grammar {

// As Grammar::tool_call().
Result<Program> compile_call(std::string_view format, std::span<const CallableTool> tools,
                             std::string_view closing_tag);

}  // namespace replayssm::grammar
