// A parsed template: statements that print or set, and expressions that compute.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/builtin.h"
#include "text/jinja/value.h"

namespace replayssm::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;  // null only where a comment says so

struct Literal {
  Value value;  // a number, true, false, none or the template's own text
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool tuple;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Attribute {
  ExpressionPtr of;
  std::string name;
};
struct Subscript {
  ExpressionPtr of;
  ExpressionPtr key;
};
struct Slice {
  ExpressionPtr of;
  ExpressionPtr start, stop, step;  // null where left out
};
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterUse {
  ExpressionPtr of;  // null in a block that is filtered: its text is the input
  const Builtin* filter;
  ArgumentList arguments;
};
struct TestUse {
  ExpressionPtr of;
  const Builtin* test;
  ArgumentList arguments;
};
struct Not {
  ExpressionPtr operand;
};
enum class ArithmeticSign { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Sign {  // unary + and -
  bool negative;
  ExpressionPtr operand;
};
struct Arithmetic {
  ArithmeticSign sign;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
enum class ComparisonSign { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
struct Comparison {  // a < b < c is a < b and b < c
  ExpressionPtr first;
  std::vector<std::pair<ComparisonSign, ExpressionPtr>> rest;
};
struct Conditional {  // value if test else otherwise
  ExpressionPtr test;
  ExpressionPtr value;
  ExpressionPtr otherwise;  // null where left out: undefined
};

struct Expression {
  int line;
  std::variant<Literal, Name, ListLiteral, DictLiteral, Attribute, Subscript, Slice, Call,
               FilterUse, TestUse, Not, Sign, Arithmetic, Logical, Concatenation, Comparison,
               Conditional>
      node;
};

struct Statement;
using Body = std::vector<Statement>;

// Where a value is assigned: one name, several names (unpacked), or a namespace's attribute.
struct Target {
  std::vector<std::string> names;
  bool unpack = false;    // (a,) unpacks although it is one name
  std::string attribute;  // of names[0], where not empty
};

struct TextOutput {
  OriginText text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;  // if and each elif
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // null where left out
  Body body;
  Body otherwise;  // where there is no item
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<ExpressionPtr> filters;  // FilterUse of null, applied in order
  Body body;
};
struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null where there is no default
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
};
struct CallBlock {  // the body is what caller() prints inside the macro
  ExpressionPtr call;
  MacroDefinition caller;
};
struct FilterBlock {
  std::vector<ExpressionPtr> filters;
  Body body;
};
struct With {  // also {% generation %}, which sets nothing
  std::vector<Set> assignments;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<TextOutput, Output, If, For, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock,
               With, Break, Continue>
      node;
};

}  // namespace replayssm::jinja
