// Raw text of a tool's parameter into JSON, by the tool's JSON schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace replayssm {

// The schemas of a request's tools: [{"type": "function", "function": {"name", "parameters"}}, ..].
class ToolSchemas {
 public:
  // Entries of another shape are left out.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  // The JSON text for what the model wrote as `parameter` of `tool`. The schema says which types
  // are possible (type, anyOf, oneOf, allOf, enum, const, $ref within the tool's schema); of these
  // the text becomes the first it can be: null, boolean, integer, number, array or object, string.
  // Numbers, arrays and objects keep their text. Text that can be none of them, and parameters that
  // the schema does not describe, become a string, so no text is ever lost.
  std::string to_json(std::string_view tool, std::string_view parameter,
                      std::string_view text) const;

 private:
  nlohmann::ordered_json parameters_ = nlohmann::ordered_json::object();  // by tool name
};

}  // namespace replayssm
