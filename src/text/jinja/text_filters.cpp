// Filters that make text. Their subject may be anything: it is taken as text.
#include <array>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

constexpr std::int64_t kWidestIndent = 1000;

template <OriginText (*change)(const OriginText&)>
Value changed(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return interpreter.text(change(to_text(subject)));
}

Value trim(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  std::optional<std::string_view> characters;
  if (arguments.text(0) != nullptr) characters = arguments.text(0)->bytes();
  return interpreter.text(strip(to_text(subject), Side::both, characters));
}

// Unlike the method, a word starts after white space, "-" or an opening bracket alone.
OriginText title_of_words(const OriginText& text) {
  OriginText result;
  bool at_start = true;
  for (const OriginText& character : characters_of(text)) {
    const char32_t c = code_point_at(character.bytes(), 0);
    result.append(at_start ? upper(character) : lower(character));
    at_start = is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return result;
}

Value replaced(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const OriginText text = to_text(subject);
  const OriginText from = to_text(*arguments[0]);
  const OriginText to = to_text(*arguments[1]);
  const std::int64_t most = arguments[2] == nullptr || arguments[2]->is_none()
                                ? -1
                                : arguments[2]->integer().value_or(-1);
  if (to.size() > 0 && text.size() + 1 > kLargestText / to.size()) {
    return interpreter.fail("replace() may make too long a text");
  }
  return interpreter.text(replace(text, from.bytes(), to, most));
}

Value indented(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  OriginText indent(std::string(4, ' '), false);
  if (arguments.text(0) != nullptr) {
    indent = *arguments.text(0);
  } else if (arguments[0] != nullptr) {
    const std::int64_t width = arguments[0]->integer().value_or(-1);
    if (width < 0 || width > kWidestIndent) {
      return interpreter.fail(fmt::format("indent() width must be from 0 to {}", kWidestIndent));
    }
    indent = OriginText(std::string(static_cast<std::size_t>(width), ' '), false);
  }
  OriginText text = to_text(subject);
  text.append("\n", false);  // as jinja2 does, so that a last empty line counts
  const std::vector<OriginText> lines = split_lines(text, /*keep_ends=*/false);
  const bool first = arguments.flag(1, false);
  const bool blank = arguments.flag(2, false);
  OriginText result;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n", false);
    if (i == 0 ? first : blank || !lines[i].empty()) result.append(indent);
    result.append(lines[i]);
    if (result.size() > kLargestText) break;
  }
  return interpreter.text(std::move(result));
}

Value formatted(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  if (!arguments.all().named.empty()) {
    return interpreter.fail("format() with named arguments is not supported");
  }
  Result<OriginText> text =
      percent_format(to_text(subject), Value::list(arguments.all().positional, /*tuple=*/true));
  return text ? interpreter.text(*std::move(text)) : interpreter.fail(text.error());
}

}  // namespace

std::span<const Builtin> text_filters() {
  static const std::array<Builtin, 8> table = {{
      {"trim", {"chars"}, 0, trim},
      {"upper", {}, 0, changed<upper>},
      {"lower", {}, 0, changed<lower>},
      {"capitalize", {}, 0, changed<capitalize>},
      {"title", {}, 0, changed<title_of_words>},
      {"replace", {"old", "new", "count"}, 2, replaced},
      {"indent", {"width", "first", "blank"}, 0, indented},
      {"format", {"*"}, 0, formatted},
  }};
  return table;
}

}  // namespace replayssm::jinja
