#include "prompt_text.h"

namespace replayssm::cli {

Result<std::vector<TokenId>> chat_tokens(const Tokenizer& tokenizer,
                                         const ChatTemplate& chat_template,
                                         const nlohmann::ordered_json& messages,
                                         const nlohmann::ordered_json& tools) {
  nlohmann::ordered_json context;
  context["messages"] = messages;
  if (!tools.is_null()) context["tools"] = tools;
  context["add_generation_prompt"] = true;
  const auto rendered = chat_template.render(context);
  if (!rendered) return rendered.error();
  return tokenizer.encode(*rendered);
}

}  // namespace replayssm::cli
