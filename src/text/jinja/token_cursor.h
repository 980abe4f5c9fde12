// The parser's place among the tokens, and its first error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/jinja/lexer.h"

namespace replayssm::jinja {

// After an error the cursor stands at the end, so that every loop of the parser stops by itself;
// what has been parsed so far is thrown away.
class TokenCursor {
 public:
  // `tokens` ends with Token::Kind::end.
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& token() const { return tokens_[at_]; }
  int line() const { return token().line; }
  bool at_end() const { return token().kind == Token::Kind::end; }

  bool is(Token::Kind kind) const { return token().kind == kind; }
  bool is_symbol(std::string_view symbol) const { return matches(0, Token::Kind::symbol, symbol); }
  bool is_name(std::string_view name) const { return matches(0, Token::Kind::name, name); }
  // The same of the token after this one.
  bool next_is_name(std::string_view name) const { return matches(1, Token::Kind::name, name); }
  bool next_is_symbol(std::string_view symbol) const {
    return matches(1, Token::Kind::symbol, symbol);
  }

  void advance() {
    if (!at_end()) ++at_;
  }
  bool skip_symbol(std::string_view symbol) { return skip_if(is_symbol(symbol)); }
  bool skip_name(std::string_view name) { return skip_if(is_name(name)); }

  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail_expecting(fmt::format("'{}'", symbol));
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (!skip_if(is(kind))) fail_expecting(what);
  }
  std::string expect_name() {
    if (!is(Token::Kind::name)) {
      fail_expecting("a name");
      return {};
    }
    std::string name = token().text;
    advance();
    return name;
  }

  void fail_expecting(std::string_view what) {
    fail(fmt::format("expected {}, got {}", what,
                     at_end() ? "the end of the template" : "'" + token().text + "'"));
  }
  void fail(std::string_view message) {
    if (!error_) error_ = template_error(line(), message);
    at_ = tokens_.size() - 1;
  }
  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

 private:
  bool matches(std::size_t ahead, Token::Kind kind, std::string_view text) const {
    const std::size_t index = at_ + ahead;
    return index < tokens_.size() && tokens_[index].kind == kind && tokens_[index].text == text;
  }
  bool skip_if(bool condition) {
    if (condition) advance();
    return condition;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::optional<Error> error_;
};

}  // namespace replayssm::jinja
