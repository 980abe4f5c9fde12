// Tokens beside the learnt vocabulary ("<|im_end|>", "<think>"): recognised as whole strings before
// the text is split into words, and only where every byte of the text is trusted.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/strong_id.h"
#include "text/origin_text.h"

namespace replayssm {

// As tokenizer.json and added_tokens_decoder of tokenizer_config.json describe it.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // left out by decode(skip_special)
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool single_word = false;  // not recognised inside a word
  bool normalized = false;   // recognised after NFC instead of before

  bool operator==(const AddedToken&) const = default;
};

// Finds a set of added tokens in text: the leftmost, of those the longest. Immutable.
class AddedTokenMatcher {
 public:
  // The bytes in [begin, end) of the text became the token, stripped white space included.
  struct Match {
    TokenId id;
    std::size_t begin;
    std::size_t end;
  };

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Matches in ascending order, not overlapping.
  std::vector<Match> find(const OriginText& text) const;

 private:
  const AddedToken* longest_at(const OriginText& text, std::size_t position) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // each from longest to shortest
  std::string first_bytes_;                                 // those that start a token
};

}  // namespace replayssm
