#include "server/chat_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/chat_messages.h"

namespace replayssm::server {
namespace {

void read_tool_choice(RequestFields& fields, ChatRequest& target) {
  const Json& value = fields.take("tool_choice");
  if (!fields.ok() || value.is_null()) return;
  constexpr std::string_view kAccepted =
      "\"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\"}} with "
      "the name of a tool";
  if (value == "auto") {
    target.tool_choice = ToolChoice::automatic;
    return;
  }
  if (value == "none") {
    target.tool_choice = ToolChoice::none;
    return;
  }
  bool accepted = false;
  if (value == "required") {
    target.tool_choice = ToolChoice::required;
    accepted = target.tools.is_array();
  } else if (value.is_object() && value.value("type", Json()) == "function") {
    const Json function = value.value("function", Json());
    const Json name = function.is_object() ? function.value("name", Json()) : Json();
    accepted = name.is_string() && target.tools.is_array() &&
               std::any_of(target.tools.begin(), target.tools.end(),
                           [&](const Json& tool) { return tool["function"]["name"] == name; });
    if (accepted) {
      target.tool_choice = ToolChoice::named;
      target.tool_name = name.get<std::string>();
    }
  }
  if (!accepted) {
    fields.fail("tool_choice", refuse("tool_choice", shown(value), kAccepted).message);
  }
}

void set_schema(RequestFields& fields, OutputFormat& format, std::string_view field,
                const Json& schema) {
  if (!fields.ok()) return;
  if (format.kind != OutputFormat::Kind::text) {
    return fields.fail(
        field, fmt::format("{}: {} says already what the output looks like", field, format.field));
  }
  Json value = schema;
  if (value.is_string()) {  // guided_json may be the schema's text
    const auto parsed = parse_json(value.get_ref<const std::string&>());
    value = parsed.ok() ? *parsed : Json();
  }
  if (!value.is_object()) {
    return fields.fail(field, refuse(field, shown(schema), "a JSON schema").message);
  }
  format.kind = OutputFormat::Kind::json_schema;
  format.schema = std::move(value);
  format.field = field;
}

void read_named_schema(RequestFields& fields, OutputFormat& format, const Json& named) {
  RequestFields own(named, "response_format.json_schema.");
  std::string text;
  bool strict = false;
  own.read("name", text);
  own.read("description", text);
  own.read("strict", strict);  // it always is
  const Json& schema = own.take("schema");
  own.refuse_others();
  if (!own.ok()) return fields.fail(*own.error());
  set_schema(fields, format, "response_format.json_schema.schema", schema);
}

void read_response_format(RequestFields& fields, OutputFormat& format) {
  const Json& value = fields.take("response_format");
  if (!fields.ok() || value.is_null()) return;
  const Json type = value.is_object() ? value.value("type", Json()) : Json();
  if (type != "text" && type != "json_object" && type != "json_schema") {
    return fields.fail(
        invalid_field("response_format.type",
                      refuse("response_format.type", type.is_null() ? shown(value) : shown(type),
                             "text, json_object or json_schema")
                          .message));
  }
  RequestFields own(value, "response_format.");
  own.take("type");
  if (type == "json_schema") {
    const Json& named = own.take("json_schema");
    own.refuse_others();
    if (!own.ok()) return fields.fail(*own.error());
    read_named_schema(fields, format, named);
  } else {
    const Json none;
    const Json& schema = type == "json_object" ? own.take("schema") : none;
    own.refuse_others();
    if (!own.ok()) return fields.fail(*own.error());
    if (!schema.is_null()) {  // as other servers have it
      set_schema(fields, format, "response_format.schema", schema);
    } else if (type == "json_object") {
      format.kind = OutputFormat::Kind::json_object;
      format.field = "response_format";
    }
  }
}

// vLLM's fields for the same.
void read_guided_output(RequestFields& fields, OutputFormat& format) {
  const Json& guided = fields.take("guided_json");
  if (!guided.is_null()) set_schema(fields, format, "guided_json", guided);
  const Json& structured = fields.take("structured_outputs");
  if (structured.is_null()) return;
  RequestFields options(structured, "structured_outputs.");
  const Json& schema = options.take("json");
  bool json_object = false;
  options.read("json_object", json_object);
  options.refuse_others();
  if (!options.ok()) return fields.fail(*options.error());
  if (!schema.is_null()) set_schema(fields, format, "structured_outputs.json", schema);
  if (json_object && format.kind == OutputFormat::Kind::text) {
    format.kind = OutputFormat::Kind::json_object;
    format.field = "structured_outputs.json_object";
  }
}

void read_logprobs(RequestFields& fields, std::optional<int>& target) {
  bool wanted = false;
  std::optional<int> top;
  fields.read("logprobs", wanted);
  fields.read("top_logprobs", top, 0, kMostTopLogprobs);
  if (wanted) {
    target = top.value_or(0);
  } else if (top.value_or(0) > 0) {
    fields.fail("top_logprobs", "top_logprobs: expected only together with logprobs: true");
  }
}

void read_template_arguments(RequestFields& fields, Json& target) {
  const Json& value = fields.take("chat_template_kwargs");
  std::string effort;
  fields.read("reasoning_effort", effort);
  if (!fields.ok()) return;
  if (!value.is_null()) {
    if (!value.is_object()) {
      return fields.fail("chat_template_kwargs",
                         refuse("chat_template_kwargs", shown(value), "an object").message);
    }
    for (const char* own : {"messages", "tools", "add_generation_prompt"}) {
      if (value.contains(own)) {
        return fields.fail("chat_template_kwargs",
                           fmt::format("chat_template_kwargs.{}: set by the request itself", own));
      }
    }
    target = value;
  }
  if (effort.empty()) return;
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts)) {
    return fields.fail(
        "reasoning_effort",
        refuse("reasoning_effort", effort, fmt::format("{}", fmt::join(kEfforts, ", "))).message);
  }
  if (!target.contains("reasoning_effort")) target["reasoning_effort"] = effort;
  if (!target.contains("enable_thinking")) target["enable_thinking"] = effort != "none";
}

}  // namespace

std::optional<ApiError> parse_chat_request(const Json& body, ChatRequest& target) {
  RequestFields fields(body);
  read_generation_fields(fields, target.generation, 1);
  std::optional<int> most;
  fields.read("max_completion_tokens", most, 1, std::numeric_limits<int>::max());
  if (most) target.generation.max_tokens = most;
  check_min_tokens(fields, target.generation);
  read_messages(fields, target.messages);
  read_tools(fields, target.tools);
  read_tool_choice(fields, target);
  fields.read("parallel_tool_calls", target.parallel_tool_calls);
  read_response_format(fields, target.format);
  read_guided_output(fields, target.format);
  read_logprobs(fields, target.top_logprobs);
  read_template_arguments(fields, target.template_arguments);
  fields.read("add_generation_prompt", target.add_generation_prompt);
  fields.accept_neutral({{"best_of", 1},
                         {"echo", false},
                         {"continue_final_message", false},
                         {"add_special_tokens", false},
                         {"include_reasoning", true},
                         {"separate_reasoning", true},
                         {"chat_template", nullptr},
                         {"documents", nullptr},
                         {"functions", nullptr},
                         {"function_call", nullptr},
                         {"modalities", Json::array({"text"})},
                         {"audio", nullptr},
                         {"prediction", nullptr},
                         {"verbosity", nullptr},
                         {"web_search_options", nullptr}});
  fields.refuse_others();
  if (!fields.ok()) return fields.error();
  const bool calls_possible = target.tools.is_array() && target.tool_choice != ToolChoice::none;
  if (target.format.kind != OutputFormat::Kind::text && calls_possible) {
    return invalid_field(target.format.field,
                         fmt::format("{}: expected only without tools, or with tool_choice none: "
                                     "an answer held to a format cannot call a tool",
                                     target.format.field));
  }
  return std::nullopt;
}

}  // namespace replayssm::server
