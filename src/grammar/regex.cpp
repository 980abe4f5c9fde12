#include "grammar/regex.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace replayssm::grammar {
namespace {

constexpr int kMostGroups = 50;  // inside each other
constexpr std::uint32_t kMostRepetitions = 1000;
constexpr std::size_t kMostPattern = 2000;

struct Expression {
  enum class Kind { characters, sequence, alternatives, repetition };
  Kind kind = Kind::sequence;
  std::vector<CodeRange> ranges;
  std::vector<Expression> parts;
  std::uint32_t least = 0;
  std::uint32_t most = 0;
};

Expression characters(std::vector<CodeRange> ranges) {
  Expression expression;
  expression.kind = Expression::Kind::characters;
  expression.ranges = std::move(ranges);
  return expression;
}

const std::vector<CodeRange> kDigits = {{'0', '9'}};
const std::vector<CodeRange> kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const std::vector<CodeRange> kAsciiSpace = {{'\t', '\r'}, {' ', ' '}};
// What ECMA-262 counts as white space or as the end of a line.
const std::vector<CodeRange> kSpace = {
    {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const std::vector<CodeRange> kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const std::vector<CodeRange> kEverything = {{0, 0x10ffff}};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  Result<Expression> parse() {
    if (text_.size() > kMostPattern) {
      return refuse("pattern", fmt::format("one of {} bytes", text_.size()), "at most 2000");
    }
    Expression all;
    all.kind = Expression::Kind::alternatives;
    do {
      const bool at_begin = take('^');
      auto sequence = parse_sequence(0);
      if (!sequence.ok()) return sequence.error();
      const bool at_end = take('$');
      auto& parts = sequence->parts;
      if (!at_begin) parts.insert(parts.begin(), anything());
      if (!at_end) parts.push_back(anything());
      all.parts.push_back(std::move(*sequence));
    } while (take('|'));
    if (!text_.empty()) return unsupported("the character", text_.substr(0, 1));
    return all;
  }

 private:
  struct Context {
    bool in_class = false;
    bool negated = false;  // what is parsed will be excluded
  };

  static Error unsupported(std::string_view what, std::string_view text) {
    return Error{fmt::format("pattern: {} {} is not supported", what, text)};
  }

  static Expression anything() {
    Expression expression;
    expression.kind = Expression::Kind::repetition;
    expression.most = kUnbounded;
    expression.parts.push_back(characters(kEverything));
    return expression;
  }

  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  // One character of the pattern itself, which is valid UTF-8.
  char32_t take_character() {
    const auto lead = static_cast<unsigned char>(text_[0]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    char32_t c = length == 1 ? lead : lead & (0x7fu >> length);
    for (std::size_t i = 1; i < length && i < text_.size(); ++i) {
      c = (c << 6) | (static_cast<unsigned char>(text_[i]) & 0x3fu);
    }
    text_.remove_prefix(std::min(length, text_.size()));
    return c;
  }

  Result<Expression> parse_alternatives(int groups) {
    Expression expression;
    expression.kind = Expression::Kind::alternatives;
    do {
      auto sequence = parse_sequence(groups);
      if (!sequence.ok()) return sequence.error();
      expression.parts.push_back(std::move(*sequence));
    } while (take('|'));
    return expression;
  }

  Result<Expression> parse_sequence(int groups) {
    Expression sequence;
    while (!text_.empty() && text_[0] != '|' && text_[0] != ')') {
      if (groups == 0 && (text_ == "$" || text_.starts_with("$|"))) break;
      auto atom = parse_atom(groups);
      if (!atom.ok()) return atom.error();
      auto repeated = parse_quantifier(std::move(*atom));
      if (!repeated.ok()) return repeated.error();
      sequence.parts.push_back(std::move(*repeated));
    }
    return sequence;
  }

  Result<Expression> parse_atom(int groups) {
    if (take('(')) {
      if (take('?') && !take(':')) {
        return unsupported("the group", fmt::format("(?{}", text_.substr(0, 1)));
      }
      if (groups == kMostGroups) return unsupported("nesting of", "more than 50 groups");
      auto inner = parse_alternatives(groups + 1);
      if (!inner.ok()) return inner.error();
      if (!take(')')) return unsupported("a group without", ")");
      return inner;
    }
    if (take('[')) return parse_class();
    if (take('.')) return characters(complement(kLineEnds));
    if (text_[0] == '\\') {
      auto ranges = parse_escape({});
      if (!ranges.ok()) return ranges.error();
      return characters(std::move(*ranges));
    }
    if (std::string_view("^$*+?{}").find(text_[0]) != std::string_view::npos) {
      return unsupported("here the character", text_.substr(0, 1));
    }
    const char32_t c = take_character();
    return characters({{c, c}});
  }

  Result<std::vector<CodeRange>> parse_escape(Context context) {
    text_.remove_prefix(1);
    if (text_.empty()) return unsupported("the escape", "\\ at the end");
    const char name = text_[0];
    const auto one = [&](char32_t c) {
      text_.remove_prefix(1);
      return std::vector<CodeRange>{{c, c}};
    };
    switch (name) {
      case 'd':
        text_.remove_prefix(1);
        return kDigits;
      case 'w':
        text_.remove_prefix(1);
        return kWord;
      case 's':
        // Of the two readings of white space, ASCII and Unicode, the one that admits less.
        text_.remove_prefix(1);
        return context.negated ? kSpace : kAsciiSpace;
      case 'D':
        text_.remove_prefix(1);
        return complement(kDigits);
      case 'W':
        text_.remove_prefix(1);
        return complement(kWord);
      case 'S':
        text_.remove_prefix(1);
        return complement(context.negated ? kAsciiSpace : kSpace);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return parse_hex(2);
      case 'u':
        return parse_hex(4);
      default:
        break;
    }
    if (name == 'b' && context.in_class) return one('\b');
    if (name == '0' && (text_.size() < 2 || text_[1] < '0' || text_[1] > '9')) return one(0);
    const auto byte = static_cast<unsigned char>(name);
    const bool letter_or_digit = (name >= '0' && name <= '9') || (name >= 'a' && name <= 'z') ||
                                 (name >= 'A' && name <= 'Z') || byte >= 0x80;
    if (letter_or_digit) return unsupported("the escape", fmt::format("\\{}", name));
    return one(byte);
  }

  Result<std::vector<CodeRange>> parse_hex(std::size_t digits) {
    const std::string_view text = text_.substr(0, digits + 1);
    char32_t value = 0;
    bool valid = text.size() == digits + 1;
    for (const char c : text.substr(1)) {
      const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
      const bool decimal = c >= '0' && c <= '9';
      const auto at = decimal ? static_cast<std::size_t>(c - '0') : digit;
      if (at == std::string_view::npos || (!decimal && at < 10)) valid = false;
      value = value * 16 + static_cast<char32_t>(at);
    }
    if (!valid || (value >= 0xd800 && value <= 0xdfff)) {
      return unsupported("the escape", fmt::format("\\{}", text));
    }
    text_.remove_prefix(digits + 1);
    return std::vector<CodeRange>{{value, value}};
  }

  Result<Expression> parse_class() {
    const bool negated = take('^');
    std::vector<CodeRange> ranges;
    while (!take(']')) {
      if (text_.empty()) return unsupported("a class without", "]");
      auto first = parse_class_member(negated);
      if (!first.ok()) return first.error();
      const bool single = first->size() == 1 && first->front().first == first->front().last;
      const bool range = single && text_.size() > 1 && text_[0] == '-' && text_[1] != ']';
      if (range) {
        text_.remove_prefix(1);
        auto last = parse_class_member(negated);
        if (!last.ok()) return last.error();
        const bool ordered = last->size() == 1 && last->front().first == last->front().last &&
                             last->front().first >= first->front().first;
        if (!ordered) return unsupported("a range of a class", "out of order");
        first->front().last = last->front().last;
      }
      ranges.insert(ranges.end(), first->begin(), first->end());
    }
    return characters(negated ? complement(ranges) : normalized(std::move(ranges)));
  }

  Result<std::vector<CodeRange>> parse_class_member(bool negated) {
    if (text_[0] == '\\') return parse_escape({true, negated});
    const char32_t c = take_character();
    return std::vector<CodeRange>{{c, c}};
  }

  Result<Expression> parse_quantifier(Expression atom) {
    Expression repeated;
    repeated.kind = Expression::Kind::repetition;
    repeated.most = kUnbounded;
    if (take('*')) {
    } else if (take('+')) {
      repeated.least = 1;
    } else if (take('?')) {
      repeated.most = 1;
    } else if (take('{')) {
      const bool given = parse_count(repeated.least);
      bool valid = given;
      if (!take(',')) {
        repeated.most = repeated.least;
      } else if (!text_.starts_with('}')) {
        valid = valid && parse_count(repeated.most);
      }
      if (!take('}') || !valid || repeated.least > repeated.most) {
        return unsupported("a repetition but {m}, {m,} or {m,n} with m <= n <=",
                           std::to_string(kMostRepetitions));
      }
    } else {
      return atom;
    }
    take('?');
    repeated.parts.push_back(std::move(atom));
    return repeated;
  }

  bool parse_count(std::uint32_t& count) {
    std::uint32_t value = 0;
    std::size_t digits = 0;
    while (!text_.empty() && text_[0] >= '0' && text_[0] <= '9' && value <= kMostRepetitions) {
      value = value * 10 + static_cast<std::uint32_t>(text_[0] - '0');
      text_.remove_prefix(1);
      ++digits;
    }
    count = value;
    return digits > 0 && value <= kMostRepetitions;
  }

  std::string_view text_;  // what is left
};

// Whether the empty string matches.
bool nullable(const Expression& expression) {
  const auto& parts = expression.parts;
  switch (expression.kind) {
    case Expression::Kind::characters:
      return false;
    case Expression::Kind::sequence:
      return std::all_of(parts.begin(), parts.end(), nullable);
    case Expression::Kind::alternatives:
      return std::any_of(parts.begin(), parts.end(), nullable);
    case Expression::Kind::repetition:
      break;
  }
  return expression.least == 0 || nullable(parts.front());
}

// The strings that match and are not empty, then `next`. Nothing where there are none.
//
// Repetitions are made of these alone: e{m,n} of an e that may be empty is (e without the empty
// string){0,n}. Counting empty rounds, nested repetitions would reach every combination of their
// counts without a character in between.
std::optional<NodeId> emit_not_empty(ProgramBuilder& builder, const Expression& expression,
                                     NodeId next) {
  switch (expression.kind) {
    case Expression::Kind::characters:
      return string_character(builder, expression.ranges, next);
    case Expression::Kind::sequence: {
      // Of the parts behind: any strings of them, and those that are not empty together.
      std::optional<NodeId> rest = next;
      std::optional<NodeId> rest_not_empty;
      const auto either = [&](std::optional<NodeId> one, std::optional<NodeId> other) {
        return one && other ? builder.split(*one, *other) : one ? one : other;
      };
      for (std::size_t i = expression.parts.size(); i-- > 0;) {
        const Expression& part = expression.parts[i];
        const auto node = rest ? emit_not_empty(builder, part, *rest) : std::nullopt;
        const bool skipped = nullable(part);
        rest_not_empty = skipped ? either(node, rest_not_empty) : node;
        rest = skipped ? either(node, rest) : node;
      }
      return rest_not_empty;
    }
    case Expression::Kind::alternatives: {
      std::vector<NodeId> nodes;
      for (const Expression& part : expression.parts) {
        if (const auto node = emit_not_empty(builder, part, next)) nodes.push_back(*node);
      }
      if (nodes.empty()) return std::nullopt;
      return builder.any_of(nodes);
    }
    case Expression::Kind::repetition:
      break;
  }
  if (expression.most == 0) return std::nullopt;
  const Expression& body = expression.parts.front();
  const std::uint32_t least = nullable(body) ? 1 : std::max(expression.least, 1u);
  if (expression.most == kUnbounded && least == 1) {
    const NodeId again = builder.placeholder();
    const auto node = emit_not_empty(builder, body, again);
    if (node) builder.resolve(again, builder.split(*node, next));
    return node;
  }
  if (expression.most == 1) return emit_not_empty(builder, body, next);
  const auto node = emit_not_empty(builder, body, builder.done());
  if (!node) return std::nullopt;
  return builder.repeat(builder.rule(*node), least, expression.most, next);
}

}  // namespace

Result<NodeId> build_pattern(ProgramBuilder& builder, std::string_view pattern, NodeId next) {
  auto expression = Parser(pattern).parse();
  if (!expression.ok()) return expression.error();
  const auto node = emit_not_empty(builder, *expression, next);
  if (nullable(*expression)) return node ? builder.split(*node, next) : next;
  if (!node) return Error{"pattern: no string matches it"};
  return *node;
}

}  // namespace replayssm::grammar
