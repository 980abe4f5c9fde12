// A JSON schema into a program that writes the documents that fit it.
#pragma once

#include <functional>
#include <string_view>

#include "core/result.h"
#include "grammar/json_rules.h"
#include "grammar/program.h"
#include "grammar/program_builder.h"
#include "grammar/schema_merge.h"

namespace replayssm::grammar {

// The subset is documented in grammar.h. Errors name the keyword and its path in the schema.
Result<Program> compile_schema(const Json& schema);

// For programs with more in them than a JSON document.
struct SchemaRules {
  ProgramBuilder& builder;
  JsonRules& json;
  // A value that fits `schema`; `path` is where it stands, for errors.
  std::function<Result<RuleId>(const Json& schema, std::string_view path)> value;
};

// The program that `entry` builds; references of its schemas are followed in `root`.
Result<Program> compile_around(const Json& root,
                               const std::function<Result<NodeId>(SchemaRules&)>& entry);

// Any JSON object.
Result<Program> compile_any_object();

}  // namespace replayssm::grammar
