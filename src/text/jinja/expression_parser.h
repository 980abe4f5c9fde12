// Expressions by recursive descent, one function a level of precedence, from loosest to tightest.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/token_cursor.h"

namespace replayssm::jinja {

// Never returns null; after an error, which the cursor keeps, what it returns means nothing.
class ExpressionParser {
 public:
  // `cursor` outlives the parser.
  explicit ExpressionParser(TokenCursor& cursor) : cursor_(cursor) {}

  // An expression, or several with commas between them, which are a tuple.
  // `with_condition`: whether "a if b" at the top belongs to it.
  ExpressionPtr tuple(bool with_condition = true);
  ExpressionPtr expression(bool with_condition = true);

  // name(arguments)|name(arguments)... after the first "|" or the block's name; `of` null.
  std::vector<ExpressionPtr> filter_chain();

  // The inside of "(...)", the opening bracket consumed.
  ArgumentList arguments();

  // How deep the parser is in nested statements and expressions. Each level counts itself.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExpressionPtr conditional();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr literal_or_name();
  ExpressionPtr list_literal();
  ExpressionPtr dict_literal();
  ExpressionPtr postfix(ExpressionPtr of);
  ExpressionPtr subscript(ExpressionPtr of);
  ExpressionPtr filters_and_tests(ExpressionPtr of);
  ExpressionPtr filter(ExpressionPtr of);
  ExpressionPtr test(ExpressionPtr of);
  bool at_end_of_tuple() const;

  template <class Node>
  ExpressionPtr make(int line, Node node) {
    return std::make_unique<Expression>(Expression{line, std::move(node)});
  }
  // A chain such as a.b.c or a + b + c makes a tree as deep as it is long, so the number of
  // operations in one expression is limited too. False, with an error, once there are too many.
  bool count_operation();

  TokenCursor& cursor_;
  int depth_ = 0;        // nested statements and expressions
  int expressions_ = 0;  // nested expressions alone
  int operations_ = 0;   // in the outermost expression
};

}  // namespace replayssm::jinja
