// The contents of a tokenizer.json, checked: everything in it is either understood or refused by
// name, so that no tokenizer loads that would encode otherwise than the `tokenizers` package.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/split_pattern.h"

namespace replayssm {

struct TokenizerFile {
  bool nfc = false;  // whether text is normalised to NFC first
  SplitPattern pattern = SplitPattern::qwen3;
  std::vector<std::string> vocabulary;  // bytes of each base token by id; empty where there is none
  std::array<TokenId, 256> byte_tokens;  // the token of each single byte
  std::vector<Bpe::Merge> merges;        // earliest learnt first
  std::vector<AddedToken> added_tokens;
};

// Ids are below this; a larger one in a file is refused, not allocated for.
inline constexpr TokenId kLargestVocabulary = 1 << 24;

// Reads a file of any size in one piece. Errors name the field.
Result<TokenizerFile> read_tokenizer_file(const std::filesystem::path& path);

}  // namespace replayssm
