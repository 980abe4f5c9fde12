#include "text/utf8.h"

#include <simdjson.h>

namespace replayssm {
namespace {

// The accepted range of the second byte and the number of bytes, by the first byte (table 3-7 of
// the Unicode standard); count 0 for bytes that start no character.
struct Lead {
  unsigned char count;
  unsigned char second_low;
  unsigned char second_high;
};

constexpr Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  using Kind = Utf8Character::Kind;
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.count == 0) return {Kind::invalid, 1};
  for (std::size_t i = 1; i < lead.count; ++i) {
    if (i == text.size()) return {Kind::truncated, i};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {Kind::invalid, i};
  }
  return {Kind::valid, lead.count};
}

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

std::string repaired_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string repaired;
  repaired.reserve(text.size() + 16);
  while (!text.empty()) {
    const Utf8Character first = first_character(text);
    if (first.kind == Utf8Character::Kind::valid) {
      repaired += text.substr(0, first.bytes);
    } else {
      repaired += kReplacementCharacter;
    }
    text.remove_prefix(first.bytes);
  }
  return repaired;
}

char32_t code_point_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  switch (character_bytes(text[position])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t value) { text += static_cast<char>(value); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace replayssm
