// Unicode as the `tokenizers` package sees it: character classes of its regex engine and its NFC.
//
// libutf8proc (Unicode 15) does the work. `tokenizers` classifies by Unicode 16 and normalises by
// an older version; unicode_tables.inc holds the code points where that makes a difference, found
// by an exhaustive comparison, so that both agree on every code point.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace replayssm {

// What the split patterns tell apart. Every code point has exactly one class.
enum class CharacterClass : std::uint8_t {
  letter,   // \p{L}
  mark,     // \p{M}
  number,   // \p{N}
  newline,  // \r or \n
  space,    // \s but \r and \n: the property White_Space
  other,
};

CharacterClass class_of(char32_t code_point);

// Whether the code point belongs to a word in the sense of \w: letters, marks, decimal and letter
// numbers, connector punctuation and the two joiners.
bool is_word_character(char32_t code_point);

// The property White_Space, which is \s.
bool is_white_space(char32_t code_point);

// What str.isspace(), str.strip() and str.split() of Python take for white space: White_Space and
// the four separators U+001C..U+001F.
bool is_python_space(char32_t code_point);

// Whether Python's repr() shows the character as it is: no control, format, private, unassigned or
// surrogate code point, and no separator but the space.
bool is_printable(char32_t code_point);

// Digits of any script's decimal numbers (Nd).
bool is_decimal_digit(char32_t code_point);

// Simple case mappings; characters without case map to themselves.
char32_t upper_case(char32_t code_point);
char32_t lower_case(char32_t code_point);
char32_t title_case(char32_t code_point);

// Appends the canonical composition (NFC) of `text`, valid UTF-8, to `out`.
void append_nfc(std::string_view text, std::string& out);

// The bytes of `text` from its start that can be normalised apart from the rest: at least one
// character, `text` valid UTF-8 and not empty. `changes` is false where they are in NFC already.
std::size_t nfc_chunk(std::string_view text, bool& changes);

}  // namespace replayssm
