#include "text/chat_template.h"

#include <fstream>
#include <iterator>

#include "text/jinja/interpreter.h"
#include "text/jinja/json_value.h"
#include "text/jinja/parser.h"
#include "text/tokenizer_config.h"
#include "text/tool_call_arguments.h"

namespace replayssm {

struct ChatTemplate::Parts {
  jinja::Body body;
  SpecialTokens special_tokens;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& directory) {
  Result<TokenizerConfig> config = read_tokenizer_config(directory);
  if (!config) return config.error();
  const std::filesystem::path file = directory / "chat_template.jinja";
  std::error_code missing;
  if (std::filesystem::exists(file, missing)) {
    if (!std::filesystem::is_regular_file(file, missing)) {
      return Error{fmt::format("{}: not a regular file", file.string())};
    }
    std::ifstream stream(file, std::ios::binary);
    config->chat_template.emplace(std::istreambuf_iterator<char>(stream),
                                  std::istreambuf_iterator<char>());
  }
  if (!config->chat_template) {
    return Error{
        fmt::format("{}: neither chat_template.jinja nor a chat_template in "
                    "tokenizer_config.json",
                    directory.string())};
  }
  return parse(*config->chat_template, std::move(config->special_tokens));
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, SpecialTokens special_tokens) {
  Result<jinja::Body> body = jinja::parse_template(source);
  if (!body) return body.error();
  return ChatTemplate(std::make_unique<Parts>(Parts{*std::move(body), std::move(special_tokens)}));
}

Result<RenderedPrompt> ChatTemplate::render(const nlohmann::ordered_json& context,
                                            std::time_t now) const {
  if (!context.is_object()) return Error{"chat template context: expected an object"};
  // What Hugging Face passes always, so that a template may tell "none" from "undefined".
  std::vector<std::pair<std::string, jinja::Value>> variables = {
      {"tools", jinja::None{}}, {"documents", jinja::None{}}, {"add_generation_prompt", false}};
  for (const auto& [name, token] : parts_->special_tokens) {
    variables.emplace_back(name, OriginText(token, /*trusted=*/true));
  }
  for (const auto& [name, json] : context.items()) {
    nlohmann::ordered_json messages;
    if (name == "messages") {
      messages = json;
      REPLAYSSM_TRY(parse_tool_call_arguments(messages));
    }
    Result<jinja::Value> value = jinja::value_of_json(name == "messages" ? messages : json);
    if (!value) return Error{fmt::format("{}: {}", name, value.error().message)};
    variables.emplace_back(name, *std::move(value));
  }
  const Result<OriginText> text =
      jinja::Interpreter(now).render(parts_->body, std::move(variables));
  if (!text) return text.error();
  return text->parts();
}

}  // namespace replayssm
