// Python's "format" % arguments.
#include <algorithm>
#include <cmath>

#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

constexpr int kWidestField = 1000;

struct Field {
  bool left = false;
  bool zeros = false;
  char sign = '\0';  // '+' or ' '
  int width = 0;
  int precision = -1;
  char kind = '\0';
};

// Reads what follows a "%", moving `at` behind it.
Result<Field> read_field(std::string_view format, std::size_t& at) {
  Field field;
  for (; at < format.size(); ++at) {
    const char flag = format[at];
    if (flag == '-') {
      field.left = true;
    } else if (flag == '0') {
      field.zeros = true;
    } else if (flag == '+' || (flag == ' ' && field.sign == '\0')) {
      field.sign = flag;
    } else if (flag != ' ') {
      break;
    }
  }
  const auto number = [&] {
    int value = 0;
    for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
      value = std::min(value * 10 + (format[at] - '0'), kWidestField + 1);
    }
    return value;
  };
  field.width = number();
  if (at < format.size() && format[at] == '.') {
    ++at;
    field.precision = number();
  }
  if (at == format.size()) return Error{"incomplete format"};
  if (field.width > kWidestField || field.precision > kWidestField) {
    return Error{fmt::format("a format field is wider than {}", kWidestField)};
  }
  field.kind = format[at++];
  return field;
}

OriginText padded(const Field& field, OriginText text, bool numeric) {
  const auto count = static_cast<std::size_t>(character_count(text.bytes()));
  const auto width = static_cast<std::size_t>(field.width);
  if (count >= width) return text;
  const std::string fill(width - count, numeric && field.zeros && !field.left ? '0' : ' ');
  OriginText result;
  if (field.left) {
    result = std::move(text);
    result.append(fill, false);
  } else if (fill[0] == '0') {
    const std::size_t sign = std::string_view("+- ").find(text.bytes()[0]) < 3 ? 1 : 0;
    result.append(text, 0, sign);
    result.append(fill, false);
    result.append(text, sign, text.size());
  } else {
    result.append(fill, false);
    result.append(text);
  }
  return result;
}

Result<OriginText> formatted(const Field& field, const Value& value) {
  const auto signed_text = [&](std::string digits, bool negative) {
    if (negative) digits.insert(0, 1, '-');
    if (!negative && field.sign != '\0') digits.insert(0, 1, field.sign);
    return padded(field, OriginText(std::move(digits), false), true);
  };
  switch (field.kind) {
    case 's':
    case 'r': {
      OriginText text = field.kind == 's' ? to_text(value) : representation(value);
      if (field.precision >= 0) text = slice(text, 0, field.precision, 1);
      return padded(field, std::move(text), false);
    }
    case 'd':
    case 'i':
    case 'x':
    case 'o': {
      std::optional<std::int64_t> whole = value.integer();
      const bool decimal = field.kind == 'd' || field.kind == 'i';
      if (!whole && decimal && value.number() && std::abs(*value.number()) < 9e18) {
        whole = static_cast<std::int64_t>(*value.number());
      }
      if (!whole) {
        return Error{fmt::format("%{} format: a real number is required, not {}", field.kind,
                                 type_name(value))};
      }
      const std::uint64_t magnitude = *whole < 0
                                          ? std::uint64_t{0} - static_cast<std::uint64_t>(*whole)
                                          : static_cast<std::uint64_t>(*whole);
      return signed_text(field.kind == 'x'   ? fmt::format("{:x}", magnitude)
                         : field.kind == 'o' ? fmt::format("{:o}", magnitude)
                                             : fmt::format("{}", magnitude),
                         *whole < 0);
    }
    case 'f':
    case 'e':
    case 'g': {
      const std::optional<double> number = value.number();
      if (!number) {
        return Error{fmt::format("must be real number, not {}", type_name(value))};
      }
      const int precision = field.precision >= 0 ? field.precision : 6;
      const double magnitude = std::abs(*number);
      return signed_text(field.kind == 'f'   ? fmt::format("{:.{}f}", magnitude, precision)
                         : field.kind == 'e' ? fmt::format("{:.{}e}", magnitude, precision)
                                             : fmt::format("{:.{}g}", magnitude, precision),
                         std::signbit(*number));
    }
    default:
      return Error{fmt::format("unsupported format character '{}'", field.kind)};
  }
}

}  // namespace

Result<OriginText> percent_format(const OriginText& format, const Value& arguments) {
  const std::vector<Value> single = {arguments};
  const std::vector<Value>& values =
      arguments.list() != nullptr && arguments.list()->tuple ? arguments.list()->items : single;
  std::size_t used = 0;
  OriginText result;
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t percent = std::min(format.bytes().find('%', at), format.size());
    result.append(format, at, percent);
    if (percent == format.size()) break;
    at = percent + 1;
    const Result<Field> field = read_field(format.bytes(), at);
    if (!field) return field.error();
    if (field->kind == '%') {
      result.append(format, at - 1, at);
      continue;
    }
    if (used == values.size()) return Error{"not enough arguments for format string"};
    const Result<OriginText> text = formatted(*field, values[used++]);
    if (!text) return text.error();
    result.append(*text);
    if (result.size() > kLargestText) return Error{"the text is too long"};
  }
  if (used < values.size() && arguments.dict() == nullptr) {
    return Error{"not all arguments converted during string formatting"};
  }
  return result;
}

}  // namespace replayssm::jinja
