// A JSON schema into a program that writes the documents that fit it.
#pragma once

#include "core/result.h"
#include "grammar/program.h"
#include "grammar/schema_merge.h"

namespace replayssm::grammar {

// The subset is documented in grammar.h. Errors name the keyword and its path in the schema.
Result<Program> compile_schema(const Json& schema);

// Any JSON object.
Result<Program> compile_any_object();

}  // namespace replayssm::grammar
