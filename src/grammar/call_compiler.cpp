#include "grammar/call_compiler.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/schema_compiler.h"

namespace replayssm::grammar {
namespace {

constexpr std::string_view kJsonFormat = "hermes";
constexpr std::string_view kXmlFormat = "qwen3_coder";
constexpr int kDeepestChoice = 8;  // a choice may refer to itself

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

// How a value of qwen3_coder is written: text as it is, anything else as JSON. A text or a constant
// that may also be null is one that may say null.
enum class Written { text, constants, json, ambiguous };

bool is_null(const Json& schema) { return schema.value("type", Json()) == "null"; }

// What a constant says.
std::string said(const Json& constant) {
  return constant.is_null() ? "null" : constant.get<std::string>();
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
    std::map<std::string_view, bool> needed;
    const auto& members = properties.get_ref<const Json::object_t&>();
    for (const auto& member : members) needed.emplace(member.first, false);
    for (const Json& name : required) {
      const auto known =
          name.is_string() ? needed.find(name.get_ref<const std::string&>()) : needed.end();
      if (known == needed.end()) {
        return at(path,
                  fmt::format("keyword \"required\": {} is not among the properties", name.dump()));
      }
      known->second = true;
    }
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const auto& [name, value] = *member;
      auto parameter = build_parameter(path + "/properties/" + name, name, value, next);
      if (!parameter.ok()) return parameter;
      next = needed.at(name) ? *parameter : builder().split(*parameter, next);
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
    Choice choice;
    const auto way = written(path, schema, choice);
    if (!way.ok()) return way.error();
    switch (*way) {
      case Written::json: {
        const auto rule = rules_.value(schema, path);
        if (!rule.ok()) return rule.error();
        return builder().call(*rule, next);
      }
      case Written::text:
        return text_without(builder(), "</parameter", next);
      case Written::constants:
        return rules_.json.any_text(std::move(choice.constants), next);
      case Written::ambiguous:
        break;
    }
    return at(path,
              "a value that may be text or something else cannot be held to a schema in this "
              "format");
  }

  // What a value may be by the schemas that were looked at.
  struct Choice {
    std::vector<std::string> constants;
    std::map<const Json*, Written> known;
  };

  // Adds what the value may say, if that is a list of constants. `depth`: choices around it.
  Result<Written> written(const std::string& path, const Json& schema, Choice& choice,
                          int depth = 0) const {
    if (depth > kDeepestChoice) return at(path, "keyword \"anyOf\" is nested too deeply");
    const auto own = resolved(path, schema);
    if (!own.ok()) return own.error();
    const auto known = choice.known.find(*own);
    if (known != choice.known.end()) return known->second;
    const auto way = written_anew(path, **own, choice, depth);
    if (way.ok()) choice.known.emplace(*own, *way);
    return way;
  }

  Result<Written> written_anew(const std::string& path, const Json& target, Choice& choice,
                               int depth) const {
    const Json listed =
        target.contains("const") ? Json::array({target["const"]}) : target.value("enum", Json());
    if (listed.is_array()) return written_constants(listed, choice.constants);
    if (target.contains("anyOf")) return written_choice(path, target, choice, depth);
    const Json type = target.value("type", Json());
    if (type.is_string() && type != "string") return Written::json;
    const Json types = type.is_string() ? Json::array({type}) : type;
    if (!types.is_array()) return Written::ambiguous;
    const auto count = [&](std::string_view name) {
      return static_cast<std::size_t>(std::count(types.begin(), types.end(), Json(name)));
    };
    if (count("string") == 0) return Written::json;
    if (count("string") + count("null") != types.size()) return Written::ambiguous;
    REPLAYSSM_TRY(check_text(path, target, "type"));
    return Written::text;
  }

  static Written written_constants(const Json& listed, std::vector<std::string>& constants) {
    const auto holds = [&](auto&& is) { return std::all_of(listed.begin(), listed.end(), is); };
    if (holds([](const Json& value) { return !value.is_string(); })) return Written::json;
    if (!holds([](const Json& value) { return value.is_string() || value.is_null(); })) {
      return Written::ambiguous;
    }
    for (const Json& value : listed) constants.push_back(said(value));
    return Written::constants;
  }

  // anyOf: all JSON, or texts or constants, and null beside them.
  Result<Written> written_choice(const std::string& path, const Json& target, Choice& choice,
                                 int depth) const {
    const Json& options = target["anyOf"];
    if (!options.is_array() || options.empty()) return Written::ambiguous;
    std::optional<Written> all;
    bool all_json = true;
    bool or_null = false;
    for (std::size_t i = 0; i < options.size(); ++i) {
      const std::string place = fmt::format("{}/anyOf/{}", path, i);
      const auto option = resolved(place, options[i]);
      if (!option.ok()) return option.error();
      const auto way = written(place, options[i], choice, depth + 1);
      if (!way.ok()) return way;
      all_json = all_json && *way == Written::json;
      if (is_null(**option)) {
        or_null = true;
      } else if (all.value_or(*way) != *way) {
        return Written::ambiguous;
      } else {
        all = *way;
      }
    }
    if (all_json) return Written::json;
    if (all == Written::text) REPLAYSSM_TRY(check_text(path, target, "anyOf"));
    if (all == Written::constants && or_null) choice.constants.push_back("null");
    return *all;
  }

  // A text in this format is held to nothing but its end.
  static Status check_text(const std::string& path, const Json& schema, std::string_view known) {
    for (const auto& [key, value] : schema.items()) {
      if (key == known || is_annotation(key)) continue;
      return at(path, fmt::format("keyword \"{}\" is not supported for text in this format", key));
    }
    return {};
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
