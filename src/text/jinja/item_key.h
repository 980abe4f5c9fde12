// What filters over sequences compare, print or choose by: an attribute of each item.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace replayssm::jinja {

class Interpreter;

// `path` is a name, an index, or several joined by dots ("function.name", "0"); null: the item
// itself. Attributes that do not exist are `otherwise`, or undefined where that is null.
Value key_of(Interpreter& interpreter, const Value& item, const Value* path,
             const Value* otherwise = nullptr);

// Text in lower case; other values as they are.
Value without_case(const Value& value);

}  // namespace replayssm::jinja
