// The tokenizer of a Hugging Face directory: byte-level BPE with NFC and the split patterns of
// Qwen3 and Qwen3.5. Ids are those of the `tokenizers` package for every valid UTF-8 text.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"
#include "text/prompt.h"

namespace replayssm {

// Immutable after load; any number of threads may use one tokenizer at a time. A moved-from
// tokenizer may only be assigned to or destroyed.
//
// Input that is not UTF-8 is repaired before encoding: each invalid sequence becomes one U+FFFD, as
// Python's bytes.decode(errors="replace") would have it.
class Tokenizer {
 public:
  // Reads tokenizer.json and, where it exists, tokenizer_config.json, whose added_tokens_decoder
  // may know more added tokens than tokenizer.json. Errors name the file and the field, and refuse
  // by name every kind of normalizer, pre-tokenizer, model, post-processor and decoder that is not
  // implemented.
  static Result<Tokenizer> load(const std::filesystem::path& directory);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ordinary text: what it spells is never an added token, so no control token can result.
  std::vector<TokenId> encode(std::string_view text) const;

  // A rendered chat template: added tokens are recognised in its trusted bytes only. Where no
  // message spells an added token, the ids equal encode_with_added_tokens(text_of(prompt)).
  std::vector<TokenId> encode(const RenderedPrompt& prompt) const;

  // Text that we wrote ourselves: added tokens are recognised everywhere, as the `tokenizers`
  // package does. Never for text from a request.
  std::vector<TokenId> encode_with_added_tokens(std::string_view trusted) const;

  // The tokens' bytes as UTF-8, invalid sequences replaced by U+FFFD as in Python. Ids outside the
  // vocabulary have no text. `skip_special` leaves out the tokens of is_special().
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The bytes one token stands for, not necessarily whole characters; empty for ids outside the
  // vocabulary. Valid as long as the tokenizer.
  std::string_view token_bytes(TokenId id) const;

  // Whether the id is an added token marked special ("<|im_end|>" is; "<think>" is not).
  bool is_special(TokenId id) const;

  // Whether the id is an added token, special or not.
  bool is_added(TokenId id) const;

  // One more than the largest id. The model's vocabulary may be padded beyond it.
  int size() const;

  // The id of an added token by its text, for example "<think>".
  std::optional<TokenId> id_of(std::string_view added_token) const;

  // From tokenizer_config.json; nothing where it names none. The ids that end a generation are the
  // union of eos() with those of config.json and generation_config.json, which the model knows.
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> pad() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace replayssm
