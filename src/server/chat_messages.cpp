#include "server/chat_messages.h"

#include <fmt/format.h>

#include <set>
#include <string>

namespace replayssm::server {
namespace {

constexpr std::string_view kRoles = "system, developer, user, assistant or tool";

ApiError wrong(const std::string& place, const Json& value, std::string_view accepted) {
  return invalid_field(place, refuse(place, shown(value), accepted).message);
}

// The text of a content; null stays null.
std::optional<ApiError> flatten_content(const std::string& place, Json& content) {
  if (content.is_string() || content.is_null()) return std::nullopt;
  if (!content.is_array()) return wrong(place, content, "text, or a list of parts of type text");
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string part_place = fmt::format("{}[{}]", place, i);
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (type != "text") {
      return wrong(part_place + ".type", type.is_null() ? part : type,
                   "text: this model reads no other kind of content");
    }
    const auto found = part.find("text");
    if (found == part.end() || !found->is_string()) {
      return wrong(part_place + ".text", found == part.end() ? Json() : *found, "text");
    }
    text += found->get_ref<const std::string&>();
  }
  content = std::move(text);
  return std::nullopt;
}

std::optional<ApiError> check_tool_calls(const std::string& place, const Json& calls) {
  if (calls.is_null()) return std::nullopt;
  if (!calls.is_array()) return wrong(place, calls, "a list of tool calls");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string call_place = fmt::format("{}[{}]", place, i);
    const Json function = calls[i].is_object() ? calls[i].value("function", Json()) : Json();
    if (!function.is_object() || !function.value("name", Json()).is_string()) {
      return wrong(call_place, calls[i], "a tool call {\"function\": {\"name\", \"arguments\"}}");
    }
    const Json arguments = function.value("arguments", Json());
    if (!arguments.is_string() && !arguments.is_object() && !arguments.is_null()) {
      return wrong(call_place + ".function.arguments", arguments, "JSON text of an object");
    }
  }
  return std::nullopt;
}

std::optional<ApiError> check_message(const std::string& place, Json& message) {
  if (!message.is_object()) return wrong(place, message, "an object with role and content");
  const Json role = message.value("role", Json());
  if (role == "developer") {
    message["role"] = "system";
  } else if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    return wrong(place + ".role", role, kRoles);
  }
  if (message.contains("function_call") && !message["function_call"].is_null()) {
    return wrong(place + ".function_call", message["function_call"], "tool_calls instead");
  }
  Json& content = message["content"];
  if (auto error = flatten_content(place + ".content", content)) return error;
  const Json calls = message.value("tool_calls", Json());
  if (auto error = check_tool_calls(place + ".tool_calls", calls)) return error;
  const bool has_calls = role == "assistant" && calls.is_array() && !calls.empty();
  if (content.is_null() && !has_calls) {
    return wrong(place + ".content", content, "text, or a list of parts of type text");
  }
  // What was thought is shown to the template by the name that templates know.
  const Json reasoning = message.value("reasoning", Json());
  if (reasoning.is_string() && !message.contains("reasoning_content")) {
    message["reasoning_content"] = reasoning;
  }
  return std::nullopt;
}

std::optional<ApiError> check_tool(const std::string& place, const Json& tool,
                                   std::set<std::string>& names) {
  if (!tool.is_object() || tool.value("type", Json()) != "function") {
    return wrong(place + ".type", tool.is_object() ? tool.value("type", Json()) : tool,
                 "\"function\"");
  }
  RequestFields own(tool, place + ".");
  own.ignore({"type", "function"});
  own.refuse_others();
  if (!own.ok()) return own.error();
  const Json function = tool.value("function", Json());
  const std::string function_place = place + ".function";
  if (!function.is_object()) return wrong(function_place, function, "an object");
  const Json name = function.value("name", Json());
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    return wrong(function_place + ".name", name, "text that is not empty");
  }
  if (!names.insert(name.get<std::string>()).second) {
    return wrong(function_place + ".name", name, "names unlike each other");
  }
  const Json parameters = function.value("parameters", Json());
  if (!parameters.is_object() && !parameters.is_null()) {
    return wrong(function_place + ".parameters", parameters, "a JSON schema");
  }
  const Json strict = function.value("strict", Json());
  if (!strict.is_boolean() && !strict.is_null()) {
    return wrong(function_place + ".strict", strict, "true or false");
  }
  return std::nullopt;
}

}  // namespace

void read_messages(RequestFields& fields, Json& target) {
  const Json& value = fields.take("messages");
  if (!fields.ok()) return;
  if (!value.is_array() || value.empty()) {
    return fields.fail(wrong("messages", value, "a list of at least one message"));
  }
  target = value;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (auto error = check_message(fmt::format("messages[{}]", i), target[i])) {
      return fields.fail(*std::move(error));
    }
  }
}

void read_tools(RequestFields& fields, Json& target) {
  const Json& value = fields.take("tools");
  if (!fields.ok() || value.is_null()) return;
  if (!value.is_array()) return fields.fail(wrong("tools", value, "a list of tools"));
  std::set<std::string> names;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (auto error = check_tool(fmt::format("tools[{}]", i), value[i], names)) {
      return fields.fail(*std::move(error));
    }
  }
  if (!value.empty()) target = value;
}

}  // namespace replayssm::server
