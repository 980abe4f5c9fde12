#include "grammar/call_compiler.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "grammar/schema_compiler.h"

namespace replayssm::grammar {
namespace {

constexpr std::string_view kJsonFormat = "hermes";
constexpr std::string_view kXmlFormat = "qwen3_coder";

// {"tools": [parameters of each]}, the root that references are followed in.
Json root_of(std::span<const CallableTool> tools) {
  Json root = {{"tools", Json::array()}};
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json none = {{"type", "object"}, {"properties", Json::object()}};
    const Json& own = tools[i].parameters;
    Json parameters = !tools[i].strict ? Json{{"type", "object"}} : own.is_object() ? own : none;
    root["tools"].push_back(moved(std::move(parameters), fmt::format("/tools/{}", i)));
  }
  return root;
}

Error at(std::string_view path, std::string_view message) {
  return Error{fmt::format("schema #{}: {}", path, message)};
}

// How a value of qwen3_coder is written: text as it is, anything else as JSON. A text that may also
// be null is a text that may say null.
enum class Written { text, constants, json, ambiguous };

bool is_type(const Json& schema, std::string_view type) {
  return schema.is_object() && schema.value("type", Json()) == type;
}

Written written(const Json& schema) {
  if (!schema.is_object()) return Written::ambiguous;
  const Json constants =
      schema.contains("const") ? Json::array({schema["const"]}) : schema.value("enum", Json());
  if (constants.is_array()) {
    const auto texts = std::count_if(constants.begin(), constants.end(),
                                     [](const Json& value) { return value.is_string(); });
    if (texts == 0) return Written::json;
    return static_cast<std::size_t>(texts) == constants.size() ? Written::constants
                                                               : Written::ambiguous;
  }
  if (const Json type = schema.value("type", Json()); !type.is_null()) {
    if (type == "string") return Written::text;
    if (!type.is_array()) return Written::json;
    if (std::find(type.begin(), type.end(), "string") == type.end()) return Written::json;
    const bool or_null = std::all_of(
        type.begin(), type.end(), [](const Json& one) { return one == "string" || one == "null"; });
    return or_null ? Written::text : Written::ambiguous;
  }
  const Json any = schema.value("anyOf", Json());
  if (!any.is_array()) return Written::ambiguous;
  const auto all = [&](auto&& holds) { return std::all_of(any.begin(), any.end(), holds); };
  if (all([](const Json& one) { return written(one) == Written::json; })) return Written::json;
  const bool or_null = all([](const Json& one) {
    return is_type(one, "null") || (is_type(one, "string") && written(one) == Written::text);
  });
  return or_null ? Written::text : Written::ambiguous;
}

// Any text in which `forbidden` (ASCII) does not occur, then `next`. One node for each beginning of
// it that the text may end with.
NodeId text_without(ProgramBuilder& builder, std::string_view forbidden, NodeId next) {
  std::vector<NodeId> ends_with;
  for (std::size_t i = 0; i < forbidden.size(); ++i) ends_with.push_back(builder.placeholder());
  const auto continued = [&](std::size_t matched, char c) {
    std::string text = std::string(forbidden.substr(0, matched)) + c;
    while (!text.empty() && !forbidden.starts_with(text)) text.erase(0, 1);
    return text.size();
  };
  constexpr std::array<CodeRange, 1> kOthers = {{{0x80, 0x10ffff}}};
  for (std::size_t matched = 0; matched < forbidden.size(); ++matched) {
    std::vector<ByteSet> to(forbidden.size());
    for (int c = 0; c < 0x80; ++c) {
      const bool control = c < ' ' && c != '\t' && c != '\n' && c != '\r';
      const std::size_t target = continued(matched, static_cast<char>(c));
      if (!control && target < forbidden.size()) to[target].set(static_cast<std::size_t>(c));
    }
    std::vector<NodeId> ways = {next, *builder.characters(kOthers, ends_with[0])};
    for (std::size_t target = 0; target < to.size(); ++target) {
      if (to[target].any()) ways.push_back(builder.bytes(to[target], ends_with[target]));
    }
    builder.resolve(ends_with[matched], builder.any_of(ways));
  }
  return ends_with[0];
}

// <function=NAME>, parameters in the order of `properties`, </function>.
class XmlCall {
 public:
  XmlCall(const Json& root, SchemaRules& rules) : root_(root), rules_(rules) {}

  Result<NodeId> build(const CallableTool& tool, std::size_t index, NodeId next) {
    if (!is_name(tool.name)) {
      return at(fmt::format("/tools/{}", index), "its name cannot be written in this format");
    }
    NodeId node = builder().literal("</function>\n", next);
    if (!tool.strict) {
      node = text_without(builder(), "</function", node);
    } else {
      auto parameters = build_parameters(fmt::format("/tools/{}", index), node);
      if (!parameters.ok()) return parameters;
      node = *parameters;
    }
    return builder().literal("\n<function=" + tool.name + ">\n", node);
  }

 private:
  ProgramBuilder& builder() { return rules_.builder; }

  static bool is_name(std::string_view name) {
    return !name.empty() && name.find_first_of("<>\r\n") == std::string_view::npos;
  }

  Result<NodeId> build_parameters(const std::string& path, NodeId next) {
    auto schema = resolved(path, root_.at(Json::json_pointer(path)));
    if (!schema.ok()) return schema.error();
    for (const auto& [key, value] : (*schema)->items()) {
      constexpr std::array kKnown = {"type", "properties", "required", "additionalProperties",
                                     "$defs"};
      if (!is_annotation(key) && std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end()) {
        return at(path, fmt::format("keyword \"{}\" is not supported", key));
      }
    }
    const Json properties = (*schema)->value("properties", Json::object());
    const Json required = (*schema)->value("required", Json::array());
    if (!properties.is_object() || !required.is_array()) {
      return at(path, "expected properties as an object and required as a list");
    }
    for (const Json& name : required) {
      if (!name.is_string() || !properties.contains(name.get<std::string>())) {
        return at(path,
                  fmt::format("keyword \"required\": {} is not among the properties", name.dump()));
      }
    }
    std::vector<std::string> names;
    for (const auto& [name, value] : properties.items()) names.push_back(name);
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      auto parameter =
          build_parameter(path + "/properties/" + *name, *name, properties[*name], next);
      if (!parameter.ok()) return parameter;
      const bool needed = std::find(required.begin(), required.end(), *name) != required.end();
      next = needed ? *parameter : builder().split(*parameter, next);
    }
    return next;
  }

  Result<NodeId> build_parameter(const std::string& path, const std::string& name,
                                 const Json& schema, NodeId next) {
    if (!is_name(name)) return at(path, "its name cannot be written in this format");
    auto value = build_value(path, schema, builder().literal("\n</parameter>\n", next));
    if (!value.ok()) return value;
    return builder().literal("<parameter=" + name + ">\n", *value);
  }

  Result<NodeId> build_value(const std::string& path, const Json& schema, NodeId next) {
    const auto own = resolved(path, schema);
    if (!own.ok()) return own.error();
    switch (written(**own)) {
      case Written::json: {
        const auto rule = rules_.value(schema, path);
        if (!rule.ok()) return rule.error();
        return builder().call(*rule, next);
      }
      case Written::text:
        for (const auto& [key, value] : (*own)->items()) {
          if (key != "type" && key != "anyOf" && !is_annotation(key)) {
            return at(path,
                      fmt::format("keyword \"{}\" is not supported for text in this format", key));
          }
        }
        return text_without(builder(), "</parameter", next);
      case Written::constants: {
        const Json constants =
            (*own)->contains("const") ? Json::array({(**own)["const"]}) : (**own)["enum"];
        std::vector<NodeId> ways;
        for (const Json& constant : constants) {
          ways.push_back(builder().literal(constant.get<std::string>(), next));
        }
        return builder().any_of(ways);
      }
      case Written::ambiguous:
        break;
    }
    return at(path,
              "a value that may be text or something else cannot be held to a schema in this "
              "format");
  }

  Result<const Json*> resolved(const std::string& path, const Json& schema) const {
    const Json* target = &schema;
    for (int steps = 0; target->is_object() && target->contains("$ref"); ++steps) {
      const Json& reference = (*target)["$ref"];
      if (steps == 16 || !reference.is_string()) return at(path, "keyword \"$ref\" leads nowhere");
      const auto next = resolve_reference(root_, reference.get<std::string>());
      if (!next.ok()) return at(path, next.error().message);
      target = *next;
    }
    if (!target->is_object()) return at(path, "expected an object");
    return target;
  }

  const Json& root_;
  SchemaRules& rules_;
};

Result<NodeId> json_call(const Json& root, SchemaRules& rules, std::span<const CallableTool> tools,
                         NodeId next) {
  Json calls = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", tools[i].name}}}, {"arguments", root["tools"][i]}}},
         {"required", Json::array({"name", "arguments"})},
         {"additionalProperties", false}});
  }
  const auto rule = rules.value({{"anyOf", std::move(calls)}}, "/tools");
  if (!rule.ok()) return rule.error();
  return rules.json.whitespace(rules.builder.call(*rule, rules.builder.literal("\n", next)));
}

Result<NodeId> xml_call(const Json& root, SchemaRules& rules, std::span<const CallableTool> tools,
                        NodeId next) {
  std::vector<NodeId> calls;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    auto call = XmlCall(root, rules).build(tools[i], i, next);
    if (!call.ok()) return call;
    calls.push_back(*call);
  }
  return rules.builder.any_of(calls);
}

}  // namespace

Result<Program> compile_call(std::string_view format, std::span<const CallableTool> tools,
                             std::string_view closing_tag) {
  if (format != kJsonFormat && format != kXmlFormat) {
    return refuse("tool call format", format, fmt::format("{} or {}", kJsonFormat, kXmlFormat));
  }
  if (tools.empty()) return Error{"tool calls: expected at least one tool"};
  const Json root = root_of(tools);
  return compile_around(root, [&](SchemaRules& rules) -> Result<NodeId> {
    NodeId end = rules.builder.done();
    if (!closing_tag.empty()) end = rules.builder.literal(closing_tag, end);
    return format == kJsonFormat ? json_call(root, rules, tools, end)
                                 : xml_call(root, rules, tools, end);
  });
}

}  // namespace replayssm::grammar
