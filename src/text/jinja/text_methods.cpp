// Methods of str.
#include <algorithm>
#include <array>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

Value wrong_argument(Interpreter& interpreter, std::string_view method, const Value& value) {
  return interpreter.fail(
      fmt::format("str.{}() got an argument of type '{}'", method, type_name(value)));
}

// The text of an optional argument that may be None; false, and failed, where it is anything else.
bool optional_text(Interpreter& interpreter, std::string_view method, const Value* argument,
                   std::optional<std::string_view>& text) {
  if (argument == nullptr || argument->is_none()) return true;
  if (argument->text() == nullptr) {
    wrong_argument(interpreter, method, *argument);
    return false;
  }
  text = argument->text()->bytes();
  return true;
}

// Whether the text starts (or ends) with the argument, or with one of a tuple of them.
template <bool at_start>
Value has_affix(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const std::string_view text = subject.text()->bytes();
  const std::vector<Value> single = {*arguments[0]};
  const List* several = arguments[0]->list();
  for (const Value& affix : several != nullptr ? several->items : single) {
    if (affix.text() == nullptr) {
      return wrong_argument(interpreter, at_start ? "startswith" : "endswith", affix);
    }
    const std::string_view bytes = affix.text()->bytes();
    if (at_start ? text.starts_with(bytes) : text.ends_with(bytes)) return true;
  }
  return false;
}

template <Side side>
Value stripped(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  std::optional<std::string_view> characters;
  if (!optional_text(interpreter, "strip", arguments[0], characters)) return Value();
  return interpreter.text(strip(*subject.text(), side, characters));
}

using Split = std::vector<OriginText> (*)(const OriginText&, std::optional<std::string_view>,
                                          std::int64_t);

template <Split cut>
Value pieces(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  std::optional<std::string_view> separator;
  if (!optional_text(interpreter, "split", arguments[0], separator)) return Value();
  if (separator && separator->empty()) return interpreter.fail("empty separator");
  const std::int64_t most = arguments[1] == nullptr ? -1 : arguments[1]->integer().value_or(-1);
  std::vector<Value> list;
  for (OriginText& piece : cut(*subject.text(), separator, most))
    list.emplace_back(std::move(piece));
  interpreter.spend(list.size() + subject.text()->size() / kTextBytesPerStep);
  return Value::list(std::move(list));
}

Value lines(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  std::vector<Value> list;
  for (OriginText& line : split_lines(*subject.text(), arguments.flag(0, false))) {
    list.emplace_back(std::move(line));
  }
  interpreter.spend(list.size() + subject.text()->size() / kTextBytesPerStep);
  return Value::list(std::move(list));
}

Value replaced(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  for (const std::size_t i : {0, 1}) {
    if (arguments.text(i) == nullptr) return wrong_argument(interpreter, "replace", *arguments[i]);
  }
  const OriginText& to = *arguments.text(1);
  if (!to.empty() && subject.text()->size() + 1 > kLargestText / to.size()) {
    return interpreter.fail("replace() may make too long a text");
  }
  const std::int64_t most = arguments[2] == nullptr ? -1 : arguments[2]->integer().value_or(-1);
  return interpreter.text(replace(*subject.text(), arguments.text(0)->bytes(), to, most));
}

template <bool from_right>
Value position(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  if (arguments.text(0) == nullptr) return wrong_argument(interpreter, "find", *arguments[0]);
  const std::string_view text = subject.text()->bytes();
  const std::string& wanted = arguments.text(0)->bytes();
  const std::size_t found = from_right ? text.rfind(wanted) : text.find(wanted);
  if (found == text.npos) return -1;
  return character_count(text.substr(0, found));
}

Value occurrences(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  if (arguments.text(0) == nullptr) return wrong_argument(interpreter, "count", *arguments[0]);
  const std::string& text = subject.text()->bytes();
  const std::string& wanted = arguments.text(0)->bytes();
  if (wanted.empty()) return character_count(text) + 1;
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != text.npos; at += wanted.size()) ++count;
  return count;
}

Value joined(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  OriginText result;
  const std::vector<Value> items = interpreter.iterate(*arguments[0]);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].text() == nullptr) return wrong_argument(interpreter, "join", items[i]);
    if (i > 0) result.append(*subject.text());
    result.append(*items[i].text());
    if (result.size() > kLargestText) break;
  }
  return interpreter.text(std::move(result));
}

template <OriginText (*change)(const OriginText&)>
Value changed(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return interpreter.text(change(*subject.text()));
}

template <bool prefix>
Value without_affix(Interpreter& interpreter, const Value& subject,
                    const BoundArguments& arguments) {
  if (arguments.text(0) == nullptr)
    return wrong_argument(interpreter, "removeprefix", *arguments[0]);
  const OriginText& text = *subject.text();
  const std::string& affix = arguments.text(0)->bytes();
  if (prefix && text.bytes().starts_with(affix)) {
    return interpreter.text(text.slice(affix.size(), text.size()));
  }
  if (!prefix && text.bytes().ends_with(affix)) {
    return interpreter.text(text.slice(0, text.size() - affix.size()));
  }
  return subject;
}

// Whether the text is not empty and all of its characters are such.
template <bool (*holds)(char32_t)>
Value consists_of(Interpreter&, const Value& subject, const BoundArguments&) {
  const std::string& text = subject.text()->bytes();
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text[at])) {
    if (!holds(code_point_at(text, at))) return false;
  }
  return !text.empty();
}

bool is_letter(char32_t c) { return class_of(c) == CharacterClass::letter; }
bool is_letter_or_number(char32_t c) {
  return is_letter(c) || class_of(c) == CharacterClass::number;
}

template <OriginText (*change)(const OriginText&)>
Value has_only_case(Interpreter&, const Value& subject, const BoundArguments&) {
  const OriginText& text = *subject.text();
  const bool has_case = upper(text).bytes() != lower(text).bytes();
  return has_case && change(text).bytes() == text.bytes();
}

}  // namespace

std::span<const Builtin> text_methods() {
  static const std::array<Builtin, 27> table = {{
      {"startswith", {"prefix"}, 1, has_affix<true>},
      {"endswith", {"suffix"}, 1, has_affix<false>},
      {"strip", {"chars"}, 0, stripped<Side::both>},
      {"lstrip", {"chars"}, 0, stripped<Side::left>},
      {"rstrip", {"chars"}, 0, stripped<Side::right>},
      {"split", {"sep", "maxsplit"}, 0, pieces<split>},
      {"rsplit", {"sep", "maxsplit"}, 0, pieces<split_from_right>},
      {"splitlines", {"keepends"}, 0, lines},
      {"replace", {"old", "new", "count"}, 2, replaced},
      {"find", {"sub"}, 1, position<false>},
      {"rfind", {"sub"}, 1, position<true>},
      {"count", {"sub"}, 1, occurrences},
      {"join", {"iterable"}, 1, joined},
      {"upper", {}, 0, changed<upper>},
      {"lower", {}, 0, changed<lower>},
      {"capitalize", {}, 0, changed<capitalize>},
      {"title", {}, 0, changed<title>},
      {"removeprefix", {"prefix"}, 1, without_affix<true>},
      {"removesuffix", {"suffix"}, 1, without_affix<false>},
      {"isspace", {}, 0, consists_of<is_python_space>},
      {"isalpha", {}, 0, consists_of<is_letter>},
      {"isalnum", {}, 0, consists_of<is_letter_or_number>},
      {"isdigit", {}, 0, consists_of<is_decimal_digit>},
      {"isdecimal", {}, 0, consists_of<is_decimal_digit>},
      {"isnumeric", {}, 0, consists_of<is_decimal_digit>},
      {"isupper", {}, 0, has_only_case<upper>},
      {"islower", {}, 0, has_only_case<lower>},
  }};
  return table;
}

}  // namespace replayssm::jinja
