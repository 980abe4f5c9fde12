#include "text/tool_call_arguments.h"

#include <string>
#include <utility>

#include "text/json_text.h"

namespace replayssm {
namespace {

using nlohmann::ordered_json;

Status parse_arguments(ordered_json& function, const std::string& field) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end()) return {};
  if (arguments->is_null()) *arguments = ordered_json::object();
  if (!arguments->is_string()) return {};
  const std::string text = arguments->get<std::string>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    *arguments = ordered_json::object();
    return {};
  }
  auto parsed = parse_json_text(text);
  if (!parsed || !parsed->is_object()) {
    constexpr std::size_t kShown = 200;
    return refuse(field + ".arguments",
                  text.size() > kShown ? text.substr(0, kShown) + "..." : text, "a JSON object");
  }
  *arguments = *std::move(parsed);
  return {};
}

}  // namespace

Status parse_tool_call_arguments(ordered_json& messages) {
  if (!messages.is_array()) return {};
  for (std::size_t m = 0; m < messages.size(); ++m) {
    ordered_json& message = messages[m];
    if (!message.is_object()) continue;
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (std::size_t c = 0; c < calls->size(); ++c) {
      ordered_json& call = (*calls)[c];
      if (!call.is_object()) continue;
      const std::string field = fmt::format("messages[{}].tool_calls[{}]", m, c);
      const auto function = call.find("function");
      const bool nested = function != call.end() && function->is_object();
      REPLAYSSM_TRY(
          parse_arguments(nested ? *function : call, nested ? field + ".function" : field));
    }
  }
  return {};
}

}  // namespace replayssm
