#include "text/jinja/operations.h"

#include <cmath>
#include <limits>

namespace replayssm::jinja {
namespace {

constexpr std::string_view symbol_of(ArithmeticSign sign) {
  switch (sign) {
    case ArithmeticSign::add:
      return "+";
    case ArithmeticSign::subtract:
      return "-";
    case ArithmeticSign::multiply:
      return "*";
    case ArithmeticSign::divide:
      return "/";
    case ArithmeticSign::floor_divide:
      return "//";
    case ArithmeticSign::modulo:
      return "%";
    case ArithmeticSign::power:
      return "** or pow()";
  }
  return "?";
}

constexpr std::string_view symbol_of(ComparisonSign sign) {
  switch (sign) {
    case ComparisonSign::less:
      return "<";
    case ComparisonSign::less_equal:
      return "<=";
    case ComparisonSign::greater:
      return ">";
    case ComparisonSign::greater_equal:
      return ">=";
    default:
      return "?";
  }
}

Error too_large() { return Error{"the integer is too large"}; }

// Rounds towards minus infinity, as Python does. `divisor` is not 0.
Result<std::int64_t> floor_quotient(std::int64_t value, std::int64_t divisor) {
  if (value == std::numeric_limits<std::int64_t>::min() && divisor == -1) return too_large();
  const std::int64_t quotient = value / divisor;
  return value % divisor != 0 && (value < 0) != (divisor < 0) ? quotient - 1 : quotient;
}

double floor_remainder(double value, double divisor) {
  const double remainder = std::fmod(value, divisor);
  return remainder != 0 && (remainder < 0) != (divisor < 0) ? remainder + divisor : remainder;
}

Result<Value> power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Error{"0.0 cannot be raised to a negative power"};
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? std::int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? std::int64_t{1} : std::int64_t{-1});
  std::int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return too_large();
  }
  return Value(result);
}

Result<Value> integer_arithmetic(ArithmeticSign sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (sign) {
    case ArithmeticSign::add:
      if (__builtin_add_overflow(a, b, &result)) return too_large();
      return Value(result);
    case ArithmeticSign::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_large();
      return Value(result);
    case ArithmeticSign::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_large();
      return Value(result);
    case ArithmeticSign::power:
      return power(a, b);
    default:
      break;
  }
  if (b == 0) return Error{"division by zero"};
  if (sign == ArithmeticSign::divide) return Value(static_cast<double>(a) / static_cast<double>(b));
  const Result<std::int64_t> quotient = floor_quotient(a, b);
  if (!quotient) return quotient.error();
  return Value(sign == ArithmeticSign::floor_divide ? *quotient : a - *quotient * b);
}

Result<Value> float_arithmetic(ArithmeticSign sign, double a, double b) {
  switch (sign) {
    case ArithmeticSign::add:
      return Value(a + b);
    case ArithmeticSign::subtract:
      return Value(a - b);
    case ArithmeticSign::multiply:
      return Value(a * b);
    case ArithmeticSign::power:
      return Value(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return Error{"float division by zero"};
  if (sign == ArithmeticSign::divide) return Value(a / b);
  const double remainder = floor_remainder(a, b);
  return Value(sign == ArithmeticSign::modulo ? remainder : std::round((a - remainder) / b));
}

Result<Value> repeated(const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.text() != nullptr) {
    if (!value.text()->empty() && count > kLargestText / value.text()->size()) {
      return Error{"the text is too long"};
    }
    OriginText text;
    for (std::size_t i = 0; i < count && !value.text()->empty(); ++i) text.append(*value.text());
    return Value(std::move(text));
  }
  const std::vector<Value>& items = value.list()->items;
  if (!items.empty() && count > kLargestList / items.size()) return Error{"the list is too long"};
  std::vector<Value> list;
  for (std::size_t i = 0; i < count && !items.empty(); ++i) {
    list.insert(list.end(), items.begin(), items.end());
  }
  return Value::list(std::move(list), value.list()->tuple);
}

Result<bool> contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.text() != nullptr) {
    if (item.text() == nullptr) {
      return Error{
          fmt::format("'in <string>' requires string as left operand, not {}", type_name(item))};
    }
    return container.text()->bytes().find(item.text()->bytes()) != std::string::npos;
  }
  if (container.dict() != nullptr) return container.dict()->find(item) != nullptr;
  if (container.list() != nullptr) {
    for (const Value& candidate : container.list()->items) {
      if (equal(candidate, item)) return true;
    }
    return false;
  }
  return Error{fmt::format("argument of type '{}' is not iterable", type_name(container))};
}

// -1, 0 or 1.
template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

Result<int> ordered(const Value& a, const Value& b, std::string_view symbol, int depth) {
  if (a.integer() && b.integer()) return order(*a.integer(), *b.integer());
  if (a.number() && b.number()) return order(*a.number(), *b.number());
  // The order of UTF-8 bytes is the order of code points.
  if (a.text() != nullptr && b.text() != nullptr) {
    return order(a.text()->bytes(), b.text()->bytes());
  }
  if (a.list() != nullptr && b.list() != nullptr && a.list()->tuple == b.list()->tuple &&
      depth < kDeepestValue) {
    const std::vector<Value>& left = a.list()->items;
    const std::vector<Value>& right = b.list()->items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return ordered(left[i], right[i], symbol, depth + 1);
    }
    return order(left.size(), right.size());
  }
  return Error{fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol,
                           type_name(a), type_name(b))};
}

}  // namespace

Result<Value> arithmetic(ArithmeticSign sign, const Value& left, const Value& right) {
  if (left.integer() && right.integer()) {
    return integer_arithmetic(sign, *left.integer(), *right.integer());
  }
  if (left.number() && right.number()) {
    return float_arithmetic(sign, *left.number(), *right.number());
  }
  if (sign == ArithmeticSign::add) {
    if (left.text() != nullptr && right.text() != nullptr) {
      OriginText text = *left.text();
      text.append(*right.text());
      return Value(std::move(text));
    }
    if (left.list() != nullptr && right.list() != nullptr &&
        left.list()->tuple == right.list()->tuple) {
      std::vector<Value> items = left.list()->items;
      items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
      return Value::list(std::move(items), left.list()->tuple);
    }
  }
  if (sign == ArithmeticSign::multiply) {
    const auto repeats = [](const Value& value) {
      return value.text() != nullptr || value.list() != nullptr;
    };
    if (repeats(left) && right.integer()) return repeated(left, *right.integer());
    if (repeats(right) && left.integer()) return repeated(right, *left.integer());
  }
  if (sign == ArithmeticSign::modulo && left.text() != nullptr) {
    Result<OriginText> text = percent_format(*left.text(), right);
    if (!text) return text.error();
    return Value(*std::move(text));
  }
  for (const Value* operand : {&left, &right}) {
    if (const auto* undefined = std::get_if<Undefined>(&operand->held())) {
      return Error{undefined->why ? *undefined->why : "an operand is undefined"};
    }
  }
  return Error{fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(sign),
                           type_name(left), type_name(right))};
}

Result<bool> compare(ComparisonSign sign, const Value& left, const Value& right) {
  switch (sign) {
    case ComparisonSign::equal:
      return equal(left, right);
    case ComparisonSign::unequal:
      return !equal(left, right);
    case ComparisonSign::in:
      return contains(right, left);
    case ComparisonSign::not_in: {
      const Result<bool> found = contains(right, left);
      if (!found) return found.error();
      return !*found;
    }
    default:
      break;
  }
  const Result<int> order = ordered(left, right, symbol_of(sign), 0);
  if (!order) return order.error();
  switch (sign) {
    case ComparisonSign::less:
      return *order < 0;
    case ComparisonSign::less_equal:
      return *order <= 0;
    case ComparisonSign::greater:
      return *order > 0;
    default:
      return *order >= 0;
  }
}

Result<bool> is_less(const Value& left, const Value& right) {
  return compare(ComparisonSign::less, left, right);
}

}  // namespace replayssm::jinja
