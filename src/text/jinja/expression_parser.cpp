#include "text/jinja/expression_parser.h"

#include <charconv>

#include "text/jinja/parser.h"

namespace replayssm::jinja {

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > kDeepestTemplate) {
    parser_.cursor_.fail(fmt::format("nested deeper than {} levels", kDeepestTemplate));
  }
}

bool ExpressionParser::count_operation() {
  if (++operations_ <= kMostOperations) return true;
  cursor_.fail(fmt::format("an expression of more than {} operations", kMostOperations));
  return false;
}

bool ExpressionParser::at_end_of_tuple() const {
  return cursor_.is(Token::Kind::output_end) || cursor_.is(Token::Kind::block_end) ||
         cursor_.is_symbol(")") || cursor_.at_end();
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  const int line = cursor_.line();
  std::vector<ExpressionPtr> items;
  items.push_back(expression(with_condition));
  bool is_tuple = false;
  while (cursor_.skip_symbol(",")) {
    is_tuple = true;
    if (at_end_of_tuple()) break;
    items.push_back(expression(with_condition));
  }
  if (!is_tuple) return std::move(items[0]);
  return make(line, ListLiteral{std::move(items), true});
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Level level(*this);
  if (expressions_++ == 0) operations_ = 0;
  ExpressionPtr node = with_condition ? conditional() : logical_or();
  --expressions_;
  return node;
}

ExpressionPtr ExpressionParser::conditional() {
  ExpressionPtr value = logical_or();
  while (cursor_.is_name("if") && count_operation()) {
    const int line = cursor_.line();
    cursor_.advance();
    ExpressionPtr test = logical_or();
    ExpressionPtr otherwise = cursor_.skip_name("else") ? expression() : nullptr;
    value = make(line, Conditional{std::move(test), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr left = logical_and();
  while (cursor_.is_name("or") && count_operation()) {
    const int line = cursor_.line();
    cursor_.advance();
    left = make(line, Logical{false, std::move(left), logical_and()});
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr left = logical_not();
  while (cursor_.is_name("and") && count_operation()) {
    const int line = cursor_.line();
    cursor_.advance();
    left = make(line, Logical{true, std::move(left), logical_not()});
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_not() {
  if (!cursor_.is_name("not")) return comparison();
  const Level level(*this);
  const int line = cursor_.line();
  cursor_.advance();
  return make(line, Not{logical_not()});
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::pair<std::string_view, ComparisonSign> kSigns[] = {
      {"==", ComparisonSign::equal},  {"!=", ComparisonSign::unequal},
      {"<", ComparisonSign::less},    {"<=", ComparisonSign::less_equal},
      {">", ComparisonSign::greater}, {">=", ComparisonSign::greater_equal}};
  const int line = cursor_.line();
  ExpressionPtr first = sum();
  std::vector<std::pair<ComparisonSign, ExpressionPtr>> rest;
  while (true) {
    std::optional<ComparisonSign> sign;
    for (const auto& [symbol, meaning] : kSigns) {
      if (cursor_.is_symbol(symbol)) sign = meaning;
    }
    if (cursor_.is_name("in")) sign = ComparisonSign::in;
    if (cursor_.is_name("not") && cursor_.next_is_name("in")) {
      cursor_.advance();
      sign = ComparisonSign::not_in;
    }
    if (!sign) break;
    cursor_.advance();
    rest.emplace_back(*sign, sum());
  }
  if (rest.empty()) return first;
  return make(line, Comparison{std::move(first), std::move(rest)});
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while ((cursor_.is_symbol("+") || cursor_.is_symbol("-")) && count_operation()) {
    const int line = cursor_.line();
    const auto sign = cursor_.is_symbol("+") ? ArithmeticSign::add : ArithmeticSign::subtract;
    cursor_.advance();
    left = make(line, Arithmetic{sign, std::move(left), concatenation()});
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = cursor_.line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  while (cursor_.skip_symbol("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts[0]);
  return make(line, Concatenation{std::move(parts)});
}

ExpressionPtr ExpressionParser::product() {
  constexpr std::pair<std::string_view, ArithmeticSign> kSigns[] = {
      {"*", ArithmeticSign::multiply},
      {"/", ArithmeticSign::divide},
      {"//", ArithmeticSign::floor_divide},
      {"%", ArithmeticSign::modulo}};
  ExpressionPtr left = power();
  while (true) {
    std::optional<ArithmeticSign> sign;
    for (const auto& [symbol, meaning] : kSigns) {
      if (cursor_.is_symbol(symbol)) sign = meaning;
    }
    if (!sign || !count_operation()) return left;
    const int line = cursor_.line();
    cursor_.advance();
    left = make(line, Arithmetic{*sign, std::move(left), power()});
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (cursor_.is_symbol("**") && count_operation()) {
    const int line = cursor_.line();
    cursor_.advance();
    left = make(line, Arithmetic{ArithmeticSign::power, std::move(left), unary(true)});
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  const int line = cursor_.line();
  ExpressionPtr node;
  if (cursor_.is_symbol("-") || cursor_.is_symbol("+")) {
    const bool negative = cursor_.is_symbol("-");
    cursor_.advance();
    node = make(line, Sign{negative, unary(false)});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::primary() {
  const int line = cursor_.line();
  if (cursor_.skip_symbol("(")) {
    if (cursor_.skip_symbol(")")) return make(line, ListLiteral{{}, true});
    ExpressionPtr inside = tuple();
    cursor_.expect_symbol(")");
    return inside;
  }
  if (cursor_.skip_symbol("[")) return list_literal();
  if (cursor_.skip_symbol("{")) return dict_literal();
  return literal_or_name();
}

ExpressionPtr ExpressionParser::literal_or_name() {
  const Token token = cursor_.token();
  const auto literal = [&](Value value) { return make(token.line, Literal{std::move(value)}); };
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  switch (token.kind) {
    case Token::Kind::name:
      cursor_.advance();
      if (token.text == "true" || token.text == "True") return literal(true);
      if (token.text == "false" || token.text == "False") return literal(false);
      if (token.text == "none" || token.text == "None") return literal(None{});
      return make(token.line, Name{token.text});
    case Token::Kind::string: {
      std::string text;  // adjacent literals are one
      for (; cursor_.is(Token::Kind::string); cursor_.advance()) text += cursor_.token().text;
      return literal(OriginText(std::move(text), /*trusted=*/true));
    }
    case Token::Kind::integer: {
      std::int64_t value = 0;
      if (std::from_chars(begin, end, value).ec != std::errc()) {
        cursor_.fail(fmt::format("the integer {} is too large", token.text));
      }
      cursor_.advance();
      return literal(value);
    }
    case Token::Kind::floating: {
      double value = 0;
      if (std::from_chars(begin, end, value).ec != std::errc()) {
        cursor_.fail(fmt::format("the number {} is out of range", token.text));
      }
      cursor_.advance();
      return literal(value);
    }
    default:
      cursor_.fail_expecting("an expression");
      return literal(None{});
  }
}

ExpressionPtr ExpressionParser::list_literal() {
  const int line = cursor_.line();
  std::vector<ExpressionPtr> items;
  while (!cursor_.is_symbol("]") && !cursor_.at_end()) {
    items.push_back(expression());
    if (!cursor_.skip_symbol(",")) break;
  }
  cursor_.expect_symbol("]");
  return make(line, ListLiteral{std::move(items), false});
}

ExpressionPtr ExpressionParser::dict_literal() {
  const int line = cursor_.line();
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  while (!cursor_.is_symbol("}") && !cursor_.at_end()) {
    ExpressionPtr key = expression();
    cursor_.expect_symbol(":");
    entries.emplace_back(std::move(key), expression());
    if (!cursor_.skip_symbol(",")) break;
  }
  cursor_.expect_symbol("}");
  return make(line, DictLiteral{std::move(entries)});
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr of) {
  const auto at_link = [&] {
    return cursor_.is_symbol(".") || cursor_.is_symbol("[") || cursor_.is_symbol("(");
  };
  while (at_link() && count_operation()) {
    const int line = cursor_.line();
    if (cursor_.skip_symbol(".")) {
      if (cursor_.is(Token::Kind::integer)) {  // a.0 is a[0]
        of = make(line, Subscript{std::move(of), literal_or_name()});
      } else {
        of = make(line, Attribute{std::move(of), cursor_.expect_name()});
      }
    } else if (cursor_.skip_symbol("[")) {
      of = subscript(std::move(of));
    } else {
      cursor_.advance();
      of = make(line, Call{std::move(of), arguments()});
    }
  }
  return of;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
  const int line = cursor_.line();
  const auto bound = [&]() -> ExpressionPtr {
    return cursor_.is_symbol(":") || cursor_.is_symbol("]") ? nullptr : expression();
  };
  ExpressionPtr start = bound();
  if (!cursor_.skip_symbol(":")) {
    if (start == nullptr) cursor_.fail_expecting("a subscript");
    cursor_.expect_symbol("]");
    return make(line, Subscript{std::move(of), std::move(start)});
  }
  ExpressionPtr stop = bound();
  ExpressionPtr step = cursor_.skip_symbol(":") ? bound() : nullptr;
  cursor_.expect_symbol("]");
  return make(line, Slice{std::move(of), std::move(start), std::move(stop), std::move(step)});
}

ArgumentList ExpressionParser::arguments() {
  ArgumentList list;
  while (!cursor_.is_symbol(")") && !cursor_.at_end()) {
    if (cursor_.is_symbol("*") || cursor_.is_symbol("**")) {
      cursor_.fail("unpacking arguments with * and ** is not supported");
      break;
    }
    if (cursor_.is(Token::Kind::name) && cursor_.next_is_symbol("=")) {
      std::string name = cursor_.expect_name();
      cursor_.advance();
      list.named.emplace_back(std::move(name), expression());
    } else if (list.named.empty()) {
      list.positional.push_back(expression());
    } else {
      cursor_.fail("a positional argument after a named one");
    }
    if (!cursor_.skip_symbol(",")) break;
  }
  cursor_.expect_symbol(")");
  return list;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr of) {
  const auto at_link = [&] {
    return cursor_.is_symbol("|") || cursor_.is_name("is") || cursor_.is_symbol("(");
  };
  while (at_link() && count_operation()) {
    const int line = cursor_.line();
    if (cursor_.skip_symbol("|")) {
      of = filter(std::move(of));
    } else if (cursor_.skip_name("is")) {
      of = test(std::move(of));
    } else {
      cursor_.advance();
      of = make(line, Call{std::move(of), arguments()});
    }
  }
  return of;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr of) {
  const int line = cursor_.line();
  const std::string name = cursor_.expect_name();
  const Builtin* found = find_filter(name);
  if (found == nullptr) cursor_.fail(fmt::format("No filter named '{}'.", name));
  ArgumentList list;
  if (cursor_.skip_symbol("(")) list = arguments();
  return make(line, FilterUse{std::move(of), found, std::move(list)});
}

std::vector<ExpressionPtr> ExpressionParser::filter_chain() {
  std::vector<ExpressionPtr> chain;
  do {
    chain.push_back(filter(nullptr));
  } while (cursor_.skip_symbol("|"));
  return chain;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
  const int line = cursor_.line();
  const bool negated = cursor_.skip_name("not");
  const std::string name = cursor_.expect_name();
  const Builtin* found = find_test(name);
  if (found == nullptr) cursor_.fail(fmt::format("No test named '{}'.", name));
  ArgumentList list;
  const bool name_follows = cursor_.is(Token::Kind::name) && !cursor_.is_name("else") &&
                            !cursor_.is_name("or") && !cursor_.is_name("and") &&
                            !cursor_.is_name("if") && !cursor_.is_name("is") &&
                            !cursor_.is_name("in") && !cursor_.is_name("not");
  if (cursor_.skip_symbol("(")) {
    list = arguments();
  } else if (name_follows || cursor_.is(Token::Kind::string) || cursor_.is(Token::Kind::integer) ||
             cursor_.is(Token::Kind::floating) || cursor_.is_symbol("[") ||
             cursor_.is_symbol("{")) {  // x is divisibleby 3
    list.positional.push_back(postfix(primary()));
  }
  ExpressionPtr result = make(line, TestUse{std::move(of), found, std::move(list)});
  return negated ? make(line, Not{std::move(result)}) : std::move(result);
}

}  // namespace replayssm::jinja
