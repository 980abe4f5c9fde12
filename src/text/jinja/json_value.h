// Between JSON and a template's values.
#pragma once

#include <nlohmann/json.hpp>

#include "core/result.h"
#include "text/jinja/value.h"

namespace replayssm::jinja {

// Every text of `json` becomes untrusted text, invalid UTF-8 in it repaired; key order is kept.
// Integers beyond 64 signed bits become floats. Refuses what nests deeper than kDeepestValue.
Result<Value> value_of_json(const nlohmann::ordered_json& json);

struct JsonStyle {
  std::string indent;  // of one level; empty where everything is on one line
  bool on_one_line = true;
  bool ascii = false;  // \u escapes for everything else
  bool sorted = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps(value) of Python. Text keeps the origin of its bytes; punctuation is untrusted.
// Errors are Python's: what JSON cannot express.
Result<OriginText> json_text(const Value& value, const JsonStyle& style);

}  // namespace replayssm::jinja
