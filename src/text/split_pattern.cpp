#include "text/split_pattern.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm {
namespace {

constexpr std::string_view kQwen3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)re"
    R"re(\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen35 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// The characters of one text with the classes that the pattern sees.
class Reader {
 public:
  Reader(SplitPattern pattern, std::string_view text)
      : mark_(pattern == SplitPattern::qwen35 ? CharacterClass::letter : CharacterClass::other),
        text_(text) {}

  bool at_end(std::size_t at) const { return at == text_.size(); }
  std::size_t next(std::size_t at) const { return at + character_bytes(text_[at]); }

  // Where the pattern has \p{M} beside \p{L}, marks count as letters; where it has not, as
  // punctuation, which is "neither space, letter nor number".
  CharacterClass at(std::size_t position) const {
    const CharacterClass found = class_of(code_point_at(text_, position));
    return found == CharacterClass::mark ? mark_ : found;
  }

  bool is(std::size_t position, CharacterClass wanted) const {
    return !at_end(position) && at(position) == wanted;
  }

  std::size_t end_of_run(std::size_t position, CharacterClass wanted) const {
    while (is(position, wanted)) position = next(position);
    return position;
  }

  // The bytes of 's, 't, 're, 've, 'm, 'll or 'd at the start of the text, whatever the case; else
  // 0. U+017F is an s when case is ignored.
  std::size_t contraction() const {
    if (text_.size() < 2 || text_[0] != '\'') return 0;
    const auto lower = [&](std::size_t i) {
      return i < text_.size() ? static_cast<char>(text_[i] | 0x20) : '\0';
    };
    switch (lower(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return lower(2) == 'e' ? 3 : 0;
      case 'l':
        return lower(2) == 'l' ? 3 : 0;
      default:
        return text_.substr(1).starts_with("\xC5\xBF") ? 3 : 0;
    }
  }

 private:
  CharacterClass mark_;
  std::string_view text_;
};

bool is_space(CharacterClass c) {
  return c == CharacterClass::space || c == CharacterClass::newline;
}

// \s*[\r\n]+ | \s+(?!\S) | \s+ at the start of a run of white space.
std::size_t white_space(const Reader& reader) {
  std::size_t end = 0;
  std::size_t last = 0;  // where the last character of the run begins
  std::size_t after_newline = 0;
  while (!reader.at_end(end) && is_space(reader.at(end))) {
    last = end;
    end = reader.next(end);
    if (reader.at(last) == CharacterClass::newline) after_newline = end;
  }
  if (after_newline > 0) return after_newline;
  // The last white space before a word belongs to the word.
  return reader.at_end(end) || last == 0 ? end : last;
}

}  // namespace

Result<SplitPattern> split_pattern_of(std::string_view regex) {
  if (regex == kQwen3) return SplitPattern::qwen3;
  if (regex == kQwen35) return SplitPattern::qwen35;
  return refuse("tokenizer.json pre_tokenizer Split pattern", regex,
                "the pattern of Qwen3 or that of Qwen3.5");
}

std::size_t first_word(SplitPattern pattern, std::string_view text) {
  using enum CharacterClass;
  const Reader reader(pattern, text);
  if (const std::size_t bytes = reader.contraction()) return bytes;

  // [^\r\n\p{L}\p{N}]?\p{L}+
  const CharacterClass first = reader.at(0);
  const std::size_t second = reader.next(0);
  if (first == letter) return reader.end_of_run(second, letter);
  if ((first == space || first == other) && reader.is(second, letter)) {
    return reader.end_of_run(second, letter);
  }
  if (first == number) return second;

  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  if (first == other || (text[0] == ' ' && reader.is(second, other))) {
    return reader.end_of_run(reader.end_of_run(second, other), newline);
  }
  return white_space(reader);
}

}  // namespace replayssm
