// The regular expressions that cut text into words before BPE, written out by hand.
//
// By hand, not by a regex library: every alternative of these patterns is decided by looking a few
// characters ahead, so the splitter is linear in the text by construction (no backtracking limits,
// no code generated at run time), and its \s, \p{L}, \p{M} and \p{N} are those of the
// `tokenizers` package on every code point (PCRE2, for one, counts U+180E as white space).
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace replayssm {

enum class SplitPattern {
  qwen3,   // words are \p{L}+
  qwen35,  // words are [\p{L}\p{M}]+, and marks are no punctuation
};

// The pattern that a tokenizer.json spells out. Refuses any other by its text.
Result<SplitPattern> split_pattern_of(std::string_view regex);

// Bytes of the first word of `text`, which is valid UTF-8 and not empty. Every text is cut
// completely: the words joined are the text.
std::size_t first_word(SplitPattern pattern, std::string_view text);

}  // namespace replayssm
