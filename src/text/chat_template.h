// Chat templates: the Jinja subset that the templates of these models use, rendered as jinja2 does
// in Hugging Face's environment (trim_blocks, lstrip_blocks, loop controls, raise_exception,
// strftime_now; tojson as Python's json.dumps without ASCII or HTML escaping, key order kept).
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/prompt.h"

namespace replayssm {

// Immutable once made; any number of threads may render one template at a time.
//
// Origin of text: the template's own text and the special tokens' variables are trusted; every
// string of the context is not, byte for byte, through concatenation, slices, filters and tojson.
// What the interpreter itself prints (numbers, JSON punctuation) is not trusted either.
class ChatTemplate {
 public:
  // Names such as "bos_token" with their text; visible to the template as trusted variables.
  using SpecialTokens = std::map<std::string, std::string>;

  // Reads chat_template.jinja, else "chat_template" of tokenizer_config.json: a string, or a list
  // of {"name", "template"} of which the one named "default" is taken. Special tokens come from
  // tokenizer_config.json. Errors name the file, or the line of the template.
  static Result<ChatTemplate> load(const std::filesystem::path& directory);

  // `source` is the template's text.
  static Result<ChatTemplate> parse(std::string_view source, SpecialTokens special_tokens = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `context` is an object: "messages", "tools", "add_generation_prompt" and whatever else the
  // template reads ("enable_thinking", ...). Arguments of tool calls in messages may be JSON text,
  // as clients send them; they are parsed before the template sees them. `now` is the time that
  // strftime_now() formats, in local time.
  //
  // Errors: what the template raises (its own words, with the line), what it does wrong, arguments
  // that are not a JSON object, and contexts or templates that nest or loop without end.
  Result<RenderedPrompt> render(const nlohmann::ordered_json& context,
                                std::time_t now = std::time(nullptr)) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace replayssm
