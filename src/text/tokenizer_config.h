// What tokenizer_config.json says that tokenizer.json does not: more added tokens, the roles of
// special tokens, and the chat template.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/added_tokens.h"

namespace replayssm {

struct TokenizerConfig {
  std::vector<AddedToken> added_tokens;               // from "added_tokens_decoder", ascending ids
  std::map<std::string, std::string> special_tokens;  // "eos_token" -> "<|im_end|>" and so on
  std::optional<std::string> chat_template;           // the text, of several the "default" one
};

// Reads DIRECTORY/tokenizer_config.json; all fields are empty where there is no such file. Errors
// name the file and the field.
Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& directory);

}  // namespace replayssm
