// A body of POST /v1/chat/completions.
#pragma once

#include <optional>
#include <string>

#include "server/generation_fields.h"

namespace replayssm::server {

// What the answer's content has to look like.
struct OutputFormat {
  enum class Kind { text, json_object, json_schema };
  Kind kind = Kind::text;
  Json schema;
  std::string field;  // the request's field that asked for it
};

enum class ToolChoice { automatic, none, required, named };

struct ChatRequest {
  GenerationFields generation;
  Json messages;
  Json tools;  // null: none
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string tool_name;  // with ToolChoice::named; one of `tools`
  bool parallel_tool_calls = true;
  OutputFormat format;
  std::optional<int> top_logprobs;  // empty: no log-probabilities
  Json template_arguments = Json::object();
  bool add_generation_prompt = true;
};

// Fills `target`; an error if the request is refused, naming the field.
std::optional<ApiError> parse_chat_request(const Json& body, ChatRequest& target);

}  // namespace replayssm::server
