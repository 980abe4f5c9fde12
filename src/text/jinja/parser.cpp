#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace replayssm::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)) {}

  Result<Body> run() {
    Body body = statements({});
    if (cursor_.failed()) return cursor_.error();
    return body;
  }

 private:
  using Kind = Token::Kind;

  // Statements up to one of the block names `ends`, which is left to be read, after its "{%"; up to
  // the end of the template where there are none.
  Body statements(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Level level(expressions_);
    Body body;
    while (!cursor_.at_end()) {
      const int line = cursor_.line();
      if (cursor_.is(Kind::text)) {
        body.push_back({line, TextOutput{OriginText(cursor_.token().text, /*trusted=*/true)}});
        cursor_.advance();
      } else if (cursor_.is(Kind::output_begin)) {
        cursor_.advance();
        body.push_back({line, Output{expressions_.tuple()}});
        cursor_.expect(Kind::output_end, "'}}'");
      } else {
        cursor_.expect(Kind::block_begin, "a tag");
        const std::string name = cursor_.is(Kind::name) ? cursor_.token().text : "";
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) return body;
        cursor_.advance();
        block(name, line, body);
      }
    }
    if (ends.size() > 0)
      cursor_.fail_expecting(fmt::format("{{% {} %}}", fmt::join(ends, "' or '")));
    return body;
  }

  // Reads "name %}" of the block that ends a body.
  void end_block(std::string_view name) {
    if (!cursor_.skip_name(name)) cursor_.fail_expecting(fmt::format("'{}'", name));
    cursor_.expect(Kind::block_end, "'%}'");
  }

  void close_tag() { cursor_.expect(Kind::block_end, "'%}'"); }

  void block(const std::string& name, int line, Body& body) {
    if (name == "if") {
      body.push_back({line, if_block()});
    } else if (name == "for") {
      body.push_back({line, for_block()});
    } else if (name == "set") {
      set_block(line, body);
    } else if (name == "macro") {
      body.push_back({line, macro()});
    } else if (name == "call") {
      body.push_back({line, call_block()});
    } else if (name == "filter") {
      std::vector<ExpressionPtr> filters = expressions_.filter_chain();
      close_tag();
      Body inside = statements({"endfilter"});
      end_block("endfilter");
      body.push_back({line, FilterBlock{std::move(filters), std::move(inside)}});
    } else if (name == "with") {
      body.push_back({line, with_block()});
    } else if (name == "generation") {
      close_tag();
      Body inside = statements({"endgeneration"});
      end_block("endgeneration");
      body.push_back({line, With{{}, std::move(inside)}});
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) cursor_.fail(fmt::format("'{}' outside of a loop", name));
      close_tag();
      if (name == "break") {
        body.push_back({line, Break{}});
      } else {
        body.push_back({line, Continue{}});
      }
    } else {
      cursor_.fail(fmt::format("the statement '{}' is not supported here", name));
    }
  }

  If if_block() {
    If node;
    while (!cursor_.failed()) {
      ExpressionPtr test = expressions_.tuple(/*with_condition=*/false);
      close_tag();
      node.branches.emplace_back(std::move(test), statements({"elif", "else", "endif"}));
      if (cursor_.skip_name("elif")) continue;
      if (cursor_.skip_name("else")) {
        close_tag();
        node.otherwise = statements({"endif"});
      }
      end_block("endif");
      break;
    }
    return node;
  }

  For for_block() {
    For node;
    node.target = target(/*may_be_attribute=*/false);
    if (!cursor_.skip_name("in")) cursor_.fail_expecting("'in'");
    node.items = expressions_.tuple(/*with_condition=*/false);
    if (cursor_.skip_name("if")) node.condition = expressions_.expression();
    if (cursor_.is_name("recursive")) cursor_.fail("recursive loops are not supported");
    close_tag();
    ++loops_;
    node.body = statements({"else", "endfor"});
    --loops_;
    if (cursor_.skip_name("else")) {
      close_tag();
      node.otherwise = statements({"endfor"});
    }
    end_block("endfor");
    return node;
  }

  void set_block(int line, Body& body) {
    Target where = target(/*may_be_attribute=*/true);
    if (cursor_.skip_symbol("=")) {
      ExpressionPtr value = expressions_.tuple();
      close_tag();
      body.push_back({line, Set{std::move(where), std::move(value)}});
      return;
    }
    std::vector<ExpressionPtr> filters;
    if (cursor_.skip_symbol("|")) filters = expressions_.filter_chain();
    close_tag();
    Body inside = statements({"endset"});
    end_block("endset");
    body.push_back({line, SetBlock{std::move(where), std::move(filters), std::move(inside)}});
  }

  Target target(bool may_be_attribute) {
    Target where;
    const bool bracket = cursor_.skip_symbol("(");
    where.names.push_back(assignable_name());
    if (may_be_attribute && cursor_.skip_symbol(".")) {
      where.attribute = cursor_.expect_name();
      return where;
    }
    while (cursor_.skip_symbol(",")) {
      where.unpack = true;
      if (!cursor_.is(Kind::name) || cursor_.is_name("in")) break;
      where.names.push_back(assignable_name());
    }
    if (bracket) cursor_.expect_symbol(")");
    return where;
  }

  std::string assignable_name() {
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (cursor_.is_name(reserved)) cursor_.fail(fmt::format("can't assign to '{}'", reserved));
    }
    return cursor_.expect_name();
  }

  // (a, b=1) after the opening bracket.
  std::vector<Parameter> parameters() {
    std::vector<Parameter> list;
    while (!cursor_.is_symbol(")") && !cursor_.at_end()) {
      Parameter parameter{assignable_name(), nullptr};
      if (cursor_.skip_symbol("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (!list.empty() && list.back().otherwise != nullptr) {
        cursor_.fail("non-default argument follows default argument");
      }
      list.push_back(std::move(parameter));
      if (!cursor_.skip_symbol(",")) break;
    }
    cursor_.expect_symbol(")");
    return list;
  }

  // A macro's body is no part of the loop around its definition.
  Body body_outside_of_loops(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body inside = statements({end});
    loops_ = loops;
    end_block(end);
    return inside;
  }

  MacroDefinition macro() {
    MacroDefinition node;
    node.name = assignable_name();
    cursor_.expect_symbol("(");
    node.parameters = parameters();
    close_tag();
    node.body = body_outside_of_loops("endmacro");
    return node;
  }

  CallBlock call_block() {
    CallBlock node;
    node.caller.name = "caller";
    if (cursor_.skip_symbol("(")) node.caller.parameters = parameters();
    node.call = expressions_.expression();
    if (!std::holds_alternative<Call>(node.call->node)) cursor_.fail("expected a call");
    close_tag();
    node.caller.body = body_outside_of_loops("endcall");
    return node;
  }

  With with_block() {
    With node;
    while (!cursor_.is(Kind::block_end) && !cursor_.at_end()) {
      Target where = target(/*may_be_attribute=*/false);
      cursor_.expect_symbol("=");
      node.assignments.push_back({std::move(where), expressions_.expression()});
      if (!cursor_.skip_symbol(",")) break;
    }
    close_tag();
    node.body = statements({"endwith"});
    end_block("endwith");
    return node;
  }

  TokenCursor cursor_;
  ExpressionParser expressions_{cursor_};
  int loops_ = 0;  // around the place where the parser is
};

}  // namespace

Result<Body> parse_template(std::string_view source) {
  Result<std::vector<Token>> tokens = tokenize(source);
  if (!tokens) return tokens.error();
  return Parser(*std::move(tokens)).run();
}

}  // namespace replayssm::jinja
