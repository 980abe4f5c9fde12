// From tokens to a template's statements.
#pragma once

#include <string_view>

#include "core/result.h"
#include "text/jinja/ast.h"

namespace replayssm::jinja {

// Nesting of statements and expressions that a template may have; deeper ones are refused, since
// parser and interpreter recurse once a level.
inline constexpr int kDeepestTemplate = 200;
// Operations, attributes, calls and filters in one expression.
inline constexpr int kMostOperations = 4000;

// Errors carry the line. Unknown statements, filters and tests are refused by name here, before
// anything is rendered.
Result<Body> parse_template(std::string_view source);

}  // namespace replayssm::jinja
