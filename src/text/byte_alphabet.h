// The byte-level alphabet of GPT-2 and its heirs: vocabularies are stored as text, so each of the
// 256 bytes has a printable character that stands for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace replayssm {

// The byte that a character of a stored token stands for; nothing where it stands for none.
std::optional<char> byte_of_character(char32_t character);

// The bytes of a token as a vocabulary stores it (valid UTF-8). A token with a character outside
// the alphabet stands for its own text.
std::string bytes_of_stored_token(std::string_view stored);

}  // namespace replayssm
