// UTF-8: finding, checking and repairing characters in bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace replayssm {

// U+FFFD, which stands for bytes that are not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What a text begins with.
struct Utf8Character {
  enum class Kind {
    valid,      // one character of `bytes` bytes
    invalid,    // `bytes` bytes that no continuation can make valid: one U+FFFD takes their place
    truncated,  // the whole text is the start of a character, `bytes` long
  };
  Kind kind;
  std::size_t bytes;
};

// Looks at the first character of `text`, which is not empty. Invalid sequences are cut as Python
// and the Unicode standard cut them (the longest start of a valid character, else one byte).
Utf8Character first_character(std::string_view text);

// Whether all of `text` is UTF-8.
bool is_utf8(std::string_view text);

// `text` with invalid sequences replaced by U+FFFD, equal to Python's
// bytes.decode("utf-8", errors="replace").
std::string repaired_utf8(std::string_view text);

// The code point at `position` of valid UTF-8.
char32_t code_point_at(std::string_view text, std::size_t position);

// Bytes of the character that starts with `lead`, in valid UTF-8.
constexpr std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Whether `byte` continues a character.
constexpr bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Appends a code point (a scalar value) to `text`.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace replayssm
