// JSON schemas as values: references, and two schemas that both hold as one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace replayssm::grammar {

using Json = nlohmann::ordered_json;

// The place in `root` that "#", "#/$defs/x" and the like name; an error for any other reference and
// for one that leads nowhere.
Result<const Json*> resolve_reference(const Json& root, std::string_view reference);

// The schema that holds where both do (allOf). Both are objects without $ref, allOf, anyOf and
// oneOf in common; annotations of `second` are left out. An error names the keyword that has no
// plain conjunction here.
Result<Json> merge_schemas(const Json& first, const Json& second);

// A schema as a part of another one, at the JSON pointer `place`: its references within itself move
// along.
Json moved(Json schema, const std::string& place);

// Two of the schemas, a list, that may hold at once as far as types, enum, const and a required
// member with disjoint constants show; nothing if no two can. References are followed in `root`.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(const Json& root,
                                                                const Json& schemas);

// The keywords that say something about a schema without constraining it.
bool is_annotation(std::string_view keyword);

}  // namespace replayssm::grammar
