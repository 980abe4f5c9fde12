#include "server/forced_calls.h"

#include <fmt/format.h>

#include "grammar/schema_merge.h"

namespace replayssm::server {
namespace {

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
                       {"arguments", grammar::moved(parameters_of(tools[i]), place)}}},
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

std::vector<grammar::CallableTool> callable_tools(const Json& tools) {
  std::vector<grammar::CallableTool> callable;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    callable.push_back({function["name"].get<std::string>(), function.value("parameters", Json()),
                        function.value("strict", Json()) == true});
  }
  return callable;
}

}  // namespace replayssm::server
