#include "server/forced_calls.h"

#include <fmt/format.h>

namespace replayssm::server {
namespace {

// A schema moved to `place` of another one: its references within itself move along.
Json moved(const Json& schema, const std::string& place) {
  Json result = schema;
  if (result.is_object()) {
    for (auto& [key, value] : result.items()) {
      const bool reference = key == "$ref" && value.is_string();
      if (reference && value.get_ref<const std::string&>().starts_with('#')) {
        value = "#" + place + value.get<std::string>().substr(1);
      } else {
        value = moved(value, place);
      }
    }
  } else if (result.is_array()) {
    for (Json& element : result) element = moved(element, place);
  }
  return result;
}

// A tool without parameters takes none.
Json parameters_of(const Json& tool) {
  const Json parameters = tool["function"].value("parameters", Json());
  const Json none = {{"type", "object"}, {"properties", Json::object()}};
  if (!parameters.is_object() || parameters.empty()) return none;
  return parameters;
}

std::string field_of(std::size_t index) {
  return fmt::format("tools[{}].function.parameters", index);
}

}  // namespace

OutputFormat named_call_format(const Json& tools, std::string_view name) {
  OutputFormat format;
  format.kind = OutputFormat::Kind::json_schema;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (tools[i]["function"]["name"] != name) continue;
    format.schema = parameters_of(tools[i]);
    format.field = field_of(i);
  }
  return format;
}

OutputFormat required_call_format(const Json& tools, bool several) {
  Json calls = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = fmt::format("/items/anyOf/{}/properties/arguments", i);
    calls.push_back({{"type", "object"},
                     {"properties",
                      {{"name", {{"const", tools[i]["function"]["name"]}}},
                       {"arguments", moved(parameters_of(tools[i]), place)}}},
                     {"required", Json::array({"name", "arguments"})},
                     {"additionalProperties", false}});
  }
  OutputFormat format;
  format.kind = OutputFormat::Kind::json_schema;
  format.field = "tools";
  format.schema = {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", std::move(calls)}}}};
  if (!several) format.schema["maxItems"] = 1;
  return format;
}

}  // namespace replayssm::server
