#include "text/jinja/string_literal.h"

#include <optional>

#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

std::optional<char32_t> digit(char c, char32_t base) {
  char32_t value = 99;
  if (c >= '0' && c <= '9') value = static_cast<char32_t>(c - '0');
  if (c >= 'a' && c <= 'f') value = static_cast<char32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') value = static_cast<char32_t>(c - 'A' + 10);
  if (value >= base) return std::nullopt;
  return value;
}

// Reads up to `most` digits from `text` at `at` and moves `at` behind them.
std::optional<char32_t> number(std::string_view text, std::size_t& at, int most, char32_t base) {
  std::optional<char32_t> value;
  for (; most > 0 && at < text.size(); --most, ++at) {
    const auto next = digit(text[at], base);
    if (!next) break;
    value = value.value_or(0) * base + *next;
  }
  return value;
}

constexpr bool is_scalar_value(char32_t c) { return c < 0x110000 && !(c >= 0xD800 && c < 0xE000); }

}  // namespace

std::string unescaped(std::string_view literal) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  std::string text;
  for (std::size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      text += literal[at++];
      continue;
    }
    const char kind = literal[at + 1];
    const std::size_t begin = at;
    at += 2;
    if (const std::size_t letter = kLetters.find(kind); letter != kLetters.npos) {
      text += kMeanings[letter];
      continue;
    }
    if (kind == '\n') continue;  // a line continued
    std::optional<char32_t> code_point;
    if (digit(kind, 8)) {
      code_point = number(literal, --at, 3, 8);
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
      code_point = number(literal, at, digits, 16);
      if (at - begin != static_cast<std::size_t>(digits) + 2) code_point.reset();
    }
    if (code_point && is_scalar_value(*code_point)) {
      append_utf8(text, *code_point);
    } else {
      text += literal.substr(begin, 2);
      at = begin + 2;
    }
  }
  return text;
}

}  // namespace replayssm::jinja
