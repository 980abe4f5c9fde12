// Tokens back into text, one at a time, without ever showing half a character.
#pragma once

#include <cstddef>
#include <string>

#include "core/strong_id.h"
#include "text/tokenizer.h"

namespace replayssm {

// The text of one stream of tokens. One object a stream: it holds the bytes of a character that is
// not complete yet. Not for use by two threads at a time.
//
// The concatenation of everything push() and finish() return is Tokenizer::decode() of all the
// tokens, wherever the tokens split the characters.
class Detokenizer {
 public:
  // `tokenizer` outlives the detokenizer. `skip_special`: special tokens have no text.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  // The text that is certain once `id` is known, valid UTF-8, often empty. Invalid bytes become
  // U+FFFD as soon as no further byte can make them valid.
  std::string push(TokenId id);
  // Of what push() returned last, the characters at its beginning that stand for bytes of earlier
  // tokens alone: each a U+FFFD.
  std::size_t replaced_earlier() const { return replaced_earlier_; }

  // Ends the stream: an incomplete character becomes one U+FFFD. Afterwards the detokenizer is as
  // new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // the start of one character, at most 3 bytes
  std::size_t replaced_earlier_ = 0;
};

}  // namespace replayssm
