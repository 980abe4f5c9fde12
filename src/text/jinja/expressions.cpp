// The interpreter's expressions.
#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"

namespace replayssm::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(*this, expression.line);
  if (failed()) return Value();
  return std::visit([this](const auto& node) { return visit(node); }, expression.node);
}

Value Interpreter::evaluate_optional(const ExpressionPtr& expression) {
  return expression == nullptr ? Value() : evaluate(*expression);
}

Value Interpreter::visit(const Name& node) {
  if (const Value* value = scope_->find(node.name)) return *value;
  for (const Builtin& function : global_functions()) {
    if (function.name != node.name) continue;
    return std::make_shared<const Function>(
        Function{node.name, [&function](Interpreter& interpreter, const Arguments& arguments) {
                   return run_builtin(interpreter, function, Value(), arguments);
                 }});
  }
  return Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Interpreter::visit(const ListLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item));
  return Value::list(std::move(items), node.tuple);
}

Value Interpreter::visit(const DictLiteral& node) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key_expression, value_expression] : node.entries) {
    const Value key = evaluate(*key_expression);
    if (key.list() != nullptr || key.dict() != nullptr) {
      return fail(fmt::format("unhashable type: '{}'", type_name(key)));
    }
    dict->set(key, evaluate(*value_expression));
  }
  return Value(std::move(dict));
}

Value Interpreter::visit(const Subscript& node) {
  const Value of = evaluate(*node.of);
  return item(of, evaluate(*node.key));
}

std::optional<std::int64_t> Interpreter::slice_bound(const ExpressionPtr& expression) {
  const Value bound = evaluate_optional(expression);
  if (expression == nullptr || bound.is_none()) return std::nullopt;
  if (!bound.integer()) {
    fail(fmt::format("slice indices must be integers or None, not '{}'", type_name(bound)));
  }
  return bound.integer();
}

Value Interpreter::visit(const Slice& node) {
  const Value of = evaluate(*node.of);
  const auto start = slice_bound(node.start);
  const auto stop = slice_bound(node.stop);
  const std::int64_t step = slice_bound(node.step).value_or(1);
  if (failed()) return Value();
  if (step == 0) return fail("slice step cannot be zero");
  if (of.text() != nullptr) return text(slice(*of.text(), start, stop, step));
  if (of.list() != nullptr) {
    const std::vector<Value>& items = of.list()->items;
    std::vector<Value> taken;
    for (const std::size_t at : slice_positions(items.size(), start, stop, step)) {
      taken.push_back(items[at]);
    }
    spend(taken.size());
    return Value::list(std::move(taken), of.list()->tuple);
  }
  // As in jinja2, where a slice of anything else is undefined, not an error.
  return item(of, Value(None{}));
}

Value Interpreter::visit(const FilterUse& node) {
  const Value subject = evaluate(*node.of);
  const Arguments arguments = evaluate(node.arguments);
  if (failed()) return Value();
  return run_builtin(*this, *node.filter, subject, arguments);
}

Value Interpreter::visit(const TestUse& node) {
  const Value subject = evaluate(*node.of);
  const Arguments arguments = evaluate(node.arguments);
  if (failed()) return Value();
  return run_builtin(*this, *node.test, subject, arguments);
}

Value Interpreter::visit(const Sign& node) {
  const Value value = evaluate(*node.operand);
  if (const auto whole = value.integer()) {
    const Result<Value> negated = arithmetic(ArithmeticSign::subtract, 0, *whole);
    if (!negated) return fail(negated.error());
    return node.negative ? *negated : Value(*whole);
  }
  if (const auto number = value.number()) return node.negative ? -*number : *number;
  return fail(fmt::format("bad operand type for unary {}: '{}'", node.negative ? '-' : '+',
                          type_name(value)));
}

Value Interpreter::visit(const Arithmetic& node) {
  const Value left = evaluate(*node.left);
  const Value right = evaluate(*node.right);
  if (failed()) return Value();
  Result<Value> value = arithmetic(node.sign, left, right);
  if (!value) return fail(value.error());
  if (value->text() != nullptr) return text(*value->text());
  if (value->list() != nullptr) spend(value->list()->items.size());
  return *std::move(value);
}

Value Interpreter::visit(const Logical& node) {
  Value left = evaluate(*node.left);
  return truth(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::visit(const Concatenation& node) {
  OriginText whole;
  for (const ExpressionPtr& part : node.parts) {
    whole.append(to_text(evaluate(*part)));
    if (failed() || whole.size() > kLargestText) break;
  }
  return text(std::move(whole));
}

Value Interpreter::visit(const Comparison& node) {
  Value left = evaluate(*node.first);
  for (const auto& [sign, expression] : node.rest) {
    Value right = evaluate(*expression);
    if (failed()) return Value();
    const Result<bool> holds = compare(sign, left, right);
    if (!holds) return fail(holds.error());
    if (!*holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::visit(const Conditional& node) {
  if (truth(evaluate(*node.test))) return evaluate(*node.value);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return Value::undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Arguments Interpreter::evaluate(const ArgumentList& list) {
  Arguments arguments;
  for (const ExpressionPtr& argument : list.positional) {
    arguments.positional.push_back(evaluate(*argument));
  }
  for (const auto& [name, argument] : list.named) {
    arguments.named.emplace_back(name, evaluate(*argument));
  }
  return arguments;
}

}  // namespace replayssm::jinja
