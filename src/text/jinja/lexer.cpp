#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja/string_literal.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

// "\r\n", "\r" and "\n" become "\n"; one at the very end is dropped.
std::string normalised_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalised_lines(source)) {}

  Result<std::vector<Token>> run() {
    while (!error_ && at_ < source_.size()) template_text();
    if (error_) return *error_;
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void fail(std::string_view message) {
    if (!error_) error_ = template_error(line_, message);
    at_ = source_.size();
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  // Moves on, counting lines.
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
  }

  void skip_white_space() {
    while (at_ < source_.size()) {
      if (!is_python_space(code_point_at(source_, at_))) break;
      advance(character_bytes(source_[at_]));
    }
  }

  // Text of the template up to the next tag, and that tag.
  void template_text() {
    const std::size_t begin = at_;
    std::size_t tag = source_.find('{', begin);
    while (tag != std::string::npos && source_.find_first_of("{%#", tag + 1) != tag + 1) {
      tag = source_.find('{', tag + 1);
    }
    std::string text = source_.substr(begin, tag == std::string::npos ? tag : tag - begin);
    if (tag == std::string::npos) {
      add(Token::Kind::text, std::move(text));
      advance(source_.size() - begin);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool line_start = begin == 0 || source_[begin - 1] == '\n';
    strip_end(text, sign, line_start, /*may_strip_indent=*/kind != '{');
    if (!text.empty()) add(Token::Kind::text, std::move(text));
    advance(tag - begin + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    switch (kind) {
      case '{':
        add(Token::Kind::output_begin, "{{");
        code("}}", Token::Kind::output_end);
        break;
      case '%':
        block();
        break;
      default:
        comment();
        break;
    }
  }

  // A tag that opens with "-" takes all white space before it; one that does not open with "+"
  // takes the indentation of its line (lstrip_blocks), unless it prints something.
  static void strip_end(std::string& text, char sign, bool line_start, bool may_strip_indent) {
    if (sign == '-') {
      while (!text.empty()) {
        std::size_t last = text.size() - 1;
        while (last > 0 && is_continuation(text[last])) --last;
        if (!is_python_space(code_point_at(text, last))) break;
        text.resize(last);
      }
    } else if (sign != '+' && may_strip_indent) {
      const std::size_t newline = text.rfind('\n');
      if (newline == std::string::npos && !line_start) return;
      const std::size_t indent = newline == std::string::npos ? 0 : newline + 1;
      for (std::size_t i = indent; i < text.size(); i += character_bytes(text[i])) {
        if (!is_python_space(code_point_at(text, i))) return;
      }
      text.resize(indent);
    }
  }

  // After the end of a tag: "-" takes all white space, a block or comment one newline
  // (trim_blocks) unless it closed with "+". `at_` is at the sign or the closing delimiter.
  // False where the tag does not end here.
  bool end_of_tag(std::string_view delimiter, bool trims_newline) {
    const char sign = source_[at_];
    const bool signed_end =
        (sign == '-' || (sign == '+' && trims_newline)) && rest().substr(1).starts_with(delimiter);
    if (!signed_end && !looking_at(delimiter)) return false;
    advance(delimiter.size() + (signed_end ? 1 : 0));
    if (signed_end && sign == '-') {
      skip_white_space();
    } else if (!signed_end && trims_newline && looking_at("\n")) {
      advance(1);
    }
    return true;
  }

  void comment() {
    while (at_ < source_.size()) {
      if (end_of_tag("#}", true)) return;
      advance(1);
    }
    fail("Missing end of comment tag");
  }

  void block() {
    if (raw_block()) return;
    add(Token::Kind::block_begin, "{%");
    code("%}", Token::Kind::block_end);
  }

  // {% raw %}: everything up to {% endraw %} is text. False where the block is another one.
  bool raw_block() {
    const std::size_t start = at_;
    const int start_line = line_;
    skip_white_space();
    if (looking_at("raw")) {
      advance(3);
      skip_white_space();
      // Unlike other blocks, it takes no newline after it unless it closes with "-".
      const bool strip = looking_at("-%}");
      if (strip || looking_at("%}")) {
        advance(strip ? 3 : 2);
        if (strip) skip_white_space();
        raw_text();
        return true;
      }
    }
    at_ = start;
    line_ = start_line;
    return false;
  }

  void raw_text() {
    const std::size_t begin = at_;
    const int begin_line = line_;
    for (std::size_t tag = begin; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      advance(tag - at_ + 2);
      const char sign = at_ < source_.size() ? source_[at_] : '\0';
      if (sign == '-' || sign == '+') advance(1);
      skip_white_space();
      if (!looking_at("endraw")) continue;
      advance(6);
      skip_white_space();
      if (at_ == source_.size() || !end_of_tag("%}", true)) continue;
      std::string text = source_.substr(begin, tag - begin);
      strip_end(text, sign, begin == 0 || source_[begin - 1] == '\n', true);
      if (!text.empty()) tokens_.push_back({Token::Kind::text, std::move(text), begin_line});
      return;
    }
    fail("Missing end of raw directive");
  }

  // The inside of a tag up to its end.
  void code(std::string_view delimiter, Token::Kind end) {
    std::string open;  // brackets that are not closed yet: inside them the delimiter means nothing
    while (true) {
      skip_white_space();
      if (error_) return;
      if (at_ == source_.size()) return fail("unexpected end of template inside a tag");
      const int line = line_;
      if (open.empty() && end_of_tag(delimiter, end == Token::Kind::block_end)) {
        tokens_.push_back({end, std::string(delimiter), line});
        return;
      }
      const char c = source_[at_];
      if (is_letter(c)) {
        name();
      } else if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        symbol(open);
      }
    }
  }

  void name() {
    std::size_t size = 0;
    while (at_ + size < source_.size() &&
           (is_letter(source_[at_ + size]) || is_digit(source_[at_ + size]))) {
      ++size;
    }
    add(Token::Kind::name, source_.substr(at_, size));
    advance(size);
  }

  // Digits from `position`, single underscores between them.
  std::size_t end_of_digits(std::size_t position) const {
    while (position < source_.size() &&
           (is_digit(source_[position]) ||
            (source_[position] == '_' &&
             is_digit(source_[std::min(position + 1, source_.size() - 1)])))) {
      ++position;
    }
    return position;
  }

  void number() {
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    std::size_t end = end_of_digits(at_);
    bool floating = false;
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      floating = true;
      end = end_of_digits(end + 1);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + 1 + (sign ? 1 : 0))) {
        floating = true;
        end = end_of_digits(end + 1 + (sign ? 1 : 0));
      }
    }
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    add(floating ? Token::Kind::floating : Token::Kind::integer, std::move(digits));
    advance(end - at_);
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail("a string literal does not end");
    add(Token::Kind::string, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  void symbol(std::string& open) {
    constexpr std::array<std::string_view, 26> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!looking_at(symbol)) continue;
      if (symbol == "(") open += ')';
      if (symbol == "[") open += ']';
      if (symbol == "{") open += '}';
      if (symbol == ")" || symbol == "]" || symbol == "}") {
        if (open.empty()) return fail(fmt::format("unexpected '{}'", symbol));
        if (open.back() != symbol[0]) {
          return fail(fmt::format("unexpected '{}', expected '{}'", symbol, open.back()));
        }
        open.pop_back();
      }
      add(Token::Kind::symbol, std::string(symbol));
      advance(symbol.size());
      return;
    }
    fail(fmt::format("unexpected char '{}'", rest().substr(0, character_bytes(source_[at_]))));
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
  std::optional<Error> error_;
};

}  // namespace

Error template_error(int line, std::string_view message) {
  return Error{fmt::format("chat template, line {}: {}", line, message)};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (!is_utf8(source)) return Error{"chat template: not UTF-8"};
  return Lexer(source).run();
}

}  // namespace replayssm::jinja
