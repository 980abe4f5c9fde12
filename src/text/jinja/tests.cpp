// What can follow "is".
#include <array>
#include <cmath>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"

namespace replayssm::jinja {
namespace {

// A test of the subject alone.
template <bool (*holds)(const Value&)>
Value plain(Interpreter&, const Value& subject, const BoundArguments&) {
  return holds(subject);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is<bool>(); }
bool is_true(const Value& v) { return v.is<bool>() && truth(v); }
bool is_false(const Value& v) { return v.is<bool>() && !truth(v); }
bool is_integer(const Value& v) { return v.is<std::int64_t>(); }
bool is_float(const Value& v) { return v.is<double>(); }
bool is_number(const Value& v) { return v.number().has_value(); }
bool is_string(const Value& v) { return v.text() != nullptr; }
bool is_mapping(const Value& v) { return v.dict() != nullptr; }
bool is_callable(const Value& v) { return v.function() != nullptr; }
// Undefined can be iterated, and has a length: it is empty.
bool is_iterable(const Value& v) {
  return v.is_undefined() || v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr;
}

bool has_case(const OriginText& text) { return upper(text).bytes() != lower(text).bytes(); }
bool is_lower(const Value& v) {
  const OriginText text = to_text(v);
  return has_case(text) && lower(text).bytes() == text.bytes();
}
bool is_upper(const Value& v) {
  const OriginText text = to_text(v);
  return has_case(text) && upper(text).bytes() == text.bytes();
}

template <ComparisonSign sign>
Value compared(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const Result<bool> holds = compare(sign, subject, *arguments[0]);
  return holds ? Value(*holds) : interpreter.fail(holds.error());
}

// subject % divisor == remainder.
Value has_remainder(Interpreter& interpreter, const Value& subject, const Value& divisor,
                    std::int64_t remainder) {
  const Result<Value> value = arithmetic(ArithmeticSign::modulo, subject, divisor);
  return value ? Value(equal(*value, remainder)) : interpreter.fail(value.error());
}

Value is_even(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return has_remainder(interpreter, subject, 2, 0);
}
Value is_odd(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return has_remainder(interpreter, subject, 2, 1);
}
Value is_divisible_by(Interpreter& interpreter, const Value& subject,
                      const BoundArguments& arguments) {
  return has_remainder(interpreter, subject, *arguments[0], 0);
}

Value is_same_as(Interpreter&, const Value& subject, const BoundArguments& arguments) {
  const Value& other = *arguments[0];
  if (subject.list() != nullptr || subject.dict() != nullptr) {
    return subject.list() == other.list() && subject.dict() == other.dict();
  }
  return subject.held().index() == other.held().index() && equal(subject, other);
}

}  // namespace

std::span<const Builtin> tests() {
  using enum ComparisonSign;
  static const std::array<Builtin, 36> table = {{
      {"defined", {}, 0, plain<is_defined>},
      {"undefined", {}, 0, plain<is_undefined>},
      {"none", {}, 0, plain<is_none>},
      {"boolean", {}, 0, plain<is_boolean>},
      {"true", {}, 0, plain<is_true>},
      {"false", {}, 0, plain<is_false>},
      {"integer", {}, 0, plain<is_integer>},
      {"float", {}, 0, plain<is_float>},
      {"number", {}, 0, plain<is_number>},
      {"string", {}, 0, plain<is_string>},
      {"mapping", {}, 0, plain<is_mapping>},
      {"sequence", {}, 0, plain<is_iterable>},
      {"iterable", {}, 0, plain<is_iterable>},
      {"callable", {}, 0, plain<is_callable>},
      {"lower", {}, 0, plain<is_lower>},
      {"upper", {}, 0, plain<is_upper>},
      {"even", {}, 0, is_even},
      {"odd", {}, 0, is_odd},
      {"divisibleby", {"num"}, 1, is_divisible_by},
      {"sameas", {"other"}, 1, is_same_as},
      {"eq", {"other"}, 1, compared<equal>},
      {"equalto", {"other"}, 1, compared<equal>},
      {"==", {"other"}, 1, compared<equal>},
      {"ne", {"other"}, 1, compared<unequal>},
      {"!=", {"other"}, 1, compared<unequal>},
      {"lt", {"other"}, 1, compared<less>},
      {"lessthan", {"other"}, 1, compared<less>},
      {"<", {"other"}, 1, compared<less>},
      {"le", {"other"}, 1, compared<less_equal>},
      {"<=", {"other"}, 1, compared<less_equal>},
      {"gt", {"other"}, 1, compared<greater>},
      {"greaterthan", {"other"}, 1, compared<greater>},
      {">", {"other"}, 1, compared<greater>},
      {"ge", {"other"}, 1, compared<greater_equal>},
      {">=", {"other"}, 1, compared<greater_equal>},
      {"in", {"seq"}, 1, compared<in>},
  }};
  return table;
}

}  // namespace replayssm::jinja
