// From what a person wrote to the tokens of a prompt.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace replayssm::cli {

// The ids of a conversation, up to where the model's answer begins. `messages` as in the OpenAI
// API; `tools` an array, or null for none. Errors: the template's.
Result<std::vector<TokenId>> chat_tokens(const Tokenizer& tokenizer,
                                         const ChatTemplate& chat_template,
                                         const nlohmann::ordered_json& messages,
                                         const nlohmann::ordered_json& tools = nullptr);

}  // namespace replayssm::cli
