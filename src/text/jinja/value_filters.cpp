// Filters that take any value.
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json_value.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"

namespace replayssm::jinja {
namespace {

constexpr std::int64_t kWidestIndent = 64;

Value or_default(Interpreter&, const Value& subject, const BoundArguments& arguments) {
  const bool absent = subject.is_undefined() || (arguments.flag(1, false) && !truth(subject));
  if (!absent) return subject;
  return arguments[0] == nullptr ? Value(OriginText()) : *arguments[0];
}

Value length(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  if (subject.is_undefined()) return 0;
  if (subject.text() != nullptr) return character_count(subject.text()->bytes());
  if (subject.list() != nullptr) return static_cast<std::int64_t>(subject.list()->items.size());
  if (subject.dict() != nullptr) return static_cast<std::int64_t>(subject.dict()->entries().size());
  return interpreter.fail(fmt::format("object of type '{}' has no len()", type_name(subject)));
}

Value as_text(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return interpreter.text(to_text(subject));
}

Value unchanged(Interpreter&, const Value& subject, const BoundArguments&) { return subject; }

// A number at the start of a text, white space around it allowed; nothing if there is more.
template <class T, class... Base>
std::optional<T> parsed(const OriginText& text, Base... base) {
  const OriginText stripped = strip(text, Side::both, std::nullopt);
  std::string_view digits = stripped.bytes();
  if (digits.starts_with('+')) digits.remove_prefix(1);
  T value{};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base...);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Value as_integer(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const Value otherwise = arguments[0] == nullptr ? Value(0) : *arguments[0];
  const std::int64_t base = arguments[1] == nullptr ? 10 : arguments[1]->integer().value_or(0);
  if (base < 2 || base > 36) return interpreter.fail("int() base must be >= 2 and <= 36");
  if (const auto whole = subject.integer()) return *whole;
  std::optional<double> number = subject.number();
  if (subject.text() != nullptr) {
    if (const auto whole = parsed<std::int64_t>(*subject.text(), static_cast<int>(base))) {
      return *whole;
    }
    number = parsed<double>(*subject.text());
  }
  if (!number || !(std::abs(*number) < 9.2e18)) return otherwise;
  return static_cast<std::int64_t>(*number);
}

Value as_float(Interpreter&, const Value& subject, const BoundArguments& arguments) {
  if (const auto number = subject.number()) return *number;
  if (subject.text() != nullptr) {
    if (const auto number = parsed<double>(*subject.text())) return *number;
  }
  return arguments[0] == nullptr ? Value(0.0) : *arguments[0];
}

Value absolute(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  if (const auto whole = subject.integer()) {
    if (*whole >= 0) return *whole;
    const Result<Value> negated = arithmetic(ArithmeticSign::subtract, 0, *whole);
    return negated ? *negated : interpreter.fail(negated.error());
  }
  if (const auto number = subject.number()) return std::abs(*number);
  return interpreter.fail(fmt::format("bad operand type for abs(): '{}'", type_name(subject)));
}

// To a multiple of 10^-precision, half to even; as it is where precision is not negative.
std::int64_t rounded_integer(std::int64_t value, std::int64_t precision) {
  std::int64_t unit = 1;
  for (; precision < 0; ++precision) unit *= 10;
  const std::int64_t below = value - ((value % unit) + unit) % unit;
  const std::int64_t twice = 2 * (value - below);
  const bool up = twice > unit || (twice == unit && below / unit % 2 != 0);
  return up ? below + unit : below;
}

Value rounded(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const std::optional<double> number = subject.number();
  const std::int64_t precision = arguments[0] == nullptr ? 0 : arguments[0]->integer().value_or(0);
  std::string_view method = "common";
  if (arguments.text(1) != nullptr) method = arguments.text(1)->bytes();
  if (!number) {
    return interpreter.fail(fmt::format("round() of a '{}'", type_name(subject)));
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return interpreter.fail("method must be common, ceil or floor");
  }
  if (precision < -15 || precision > 15)
    return interpreter.fail("precision must be from -15 to 15");
  if (method == "common") {
    if (const auto whole = subject.integer()) return rounded_integer(*whole, precision);
    // The decimal digits are rounded, half to even, as Python does.
    if (precision >= 0) {
      double value = 0;
      const std::string digits = fmt::format("{:.{}f}", *number, precision);
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return value;
    }
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(*number / scale) * scale;
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale)) / scale;
}

Value to_json(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  JsonStyle style;
  style.ascii = arguments.flag(0, false);
  style.sorted = arguments.flag(3, false);
  if (arguments[1] != nullptr && !arguments[1]->is_none()) {
    style.on_one_line = false;
    style.item_separator.pop_back();  // "," alone, as Python does with an indent
    if (const OriginText* indent = arguments.text(1)) {
      style.indent = indent->bytes();
    } else {
      const std::int64_t width = arguments[1]->integer().value_or(-1);
      if (width < 0 || width > kWidestIndent) {
        return interpreter.fail(fmt::format("tojson indent must be from 0 to {}", kWidestIndent));
      }
      style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
  }
  if (arguments[2] != nullptr && !arguments[2]->is_none()) {
    const List* separators = arguments[2]->list();
    if (separators == nullptr || separators->items.size() != 2 ||
        separators->items[0].text() == nullptr || separators->items[1].text() == nullptr) {
      return interpreter.fail("tojson separators must be a pair of texts");
    }
    style.item_separator = separators->items[0].text()->bytes();
    style.key_separator = separators->items[1].text()->bytes();
  }
  Result<OriginText> text = json_text(subject, style);
  return text ? interpreter.text(*std::move(text)) : interpreter.fail(text.error());
}

Value items(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  std::vector<Value> pairs;
  if (subject.is_undefined()) return Value::list({});
  if (subject.dict() == nullptr) {
    return interpreter.fail("Can only get item pairs from a mapping.");
  }
  for (const auto& [key, value] : subject.dict()->entries()) {
    pairs.push_back(Value::list({key, value}, /*tuple=*/true));
  }
  return Value::list(std::move(pairs));
}

}  // namespace

std::span<const Builtin> value_filters() {
  static const std::array<Builtin, 12> table = {{
      {"default", {"default_value", "boolean"}, 0, or_default},
      {"d", {"default_value", "boolean"}, 0, or_default},
      {"length", {}, 0, length},
      {"count", {}, 0, length},
      {"string", {}, 0, as_text},
      {"safe", {}, 0, unchanged},
      {"int", {"default", "base"}, 0, as_integer},
      {"float", {"default"}, 0, as_float},
      {"abs", {}, 0, absolute},
      {"round", {"precision", "method"}, 0, rounded},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, to_json},
      {"items", {}, 0, items},
  }};
  return table;
}

}  // namespace replayssm::jinja
