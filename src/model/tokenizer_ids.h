// Which token ids a checkpoint's tokenizer can produce. The tokenizer itself lives elsewhere; the
// model needs to know only where the real vocabulary ends and which id ends a turn.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/strong_id.h"

namespace replayssm {

struct TokenizerIds {
  int size = 0;                // the largest id + 1
  std::optional<TokenId> eos;  // the id of the eos token's text, where it is one token
};

// Reads tokenizer.json: the ids of `model.vocab` and of `added_tokens`. `eos_text` may be empty.
// Errors name the file and what is wrong in it.
Result<TokenizerIds> read_tokenizer_ids(const std::filesystem::path& tokenizer_json,
                                        const std::string& eos_text);

// The eos token's text in tokenizer_config.json (a string, or an object with `content`); empty
// where the file names none.
Result<std::string> read_eos_text(const std::filesystem::path& tokenizer_config_json);

}  // namespace replayssm
