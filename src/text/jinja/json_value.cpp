#include "text/jinja/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

OriginText untrusted(std::string_view text) { return OriginText(repaired_utf8(text), false); }

Error too_deep() {
  return Error{fmt::format("values nested deeper than {} levels", kDeepestValue)};
}

Result<Value> converted(const nlohmann::ordered_json& json, int depth) {
  if (depth > kDeepestValue) return too_deep();
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items()) {
        Result<Value> value = converted(item, depth + 1);
        if (!value) return value.error();
        dict->set(untrusted(key), *std::move(value));
      }
      return Value(std::move(dict));
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        Result<Value> value = converted(item, depth + 1);
        if (!value) return value.error();
        items.push_back(*std::move(value));
      }
      return Value::list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::string:
      return Value(untrusted(json.get_ref<const std::string&>()));
    case nlohmann::ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto value = json.get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Value(static_cast<double>(value));
      }
      return Value(static_cast<std::int64_t>(value));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value(json.get<double>());
    default:
      return Value(None{});
  }
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  Result<OriginText> run(const Value& value) {
    write(value, 0);
    if (error_) return *error_;
    return std::move(out_);
  }

 private:
  void plain(std::string_view text) { out_.append(text, false); }

  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  void write(const Value& value, int depth) {
    if (depth > kDeepestValue) return fail(too_deep());
    if (out_.size() > kLargestText) return fail(Error{"the text is too long"});
    if (error_) return;
    if (value.text() != nullptr) {
      write_text(*value.text());
    } else if (value.list() != nullptr) {
      write_list(*value.list(), depth);
    } else if (value.dict() != nullptr) {
      write_dict(*value.dict(), depth);
    } else if (const auto scalar = scalar_text(value)) {
      plain(*scalar);
    } else {
      fail(Error{fmt::format("Object of type {} is not JSON serializable", type_name(value))});
    }
  }

  // Numbers, booleans and null as JSON writes them; nothing for other kinds.
  static std::optional<std::string> scalar_text(const Value& value) {
    if (value.is_none()) return "null";
    if (const auto* boolean = std::get_if<bool>(&value.held())) return *boolean ? "true" : "false";
    if (const auto* integer = std::get_if<std::int64_t>(&value.held())) {
      return fmt::format("{}", *integer);
    }
    if (const auto* floating = std::get_if<double>(&value.held())) {
      if (std::isnan(*floating)) return "NaN";
      if (std::isinf(*floating)) return *floating < 0 ? "-Infinity" : "Infinity";
      return float_text(*floating);
    }
    return std::nullopt;
  }

  void new_line(int depth) {
    if (style_.on_one_line) return;
    plain("\n");
    for (int i = 0; i < depth; ++i) plain(style_.indent);
  }

  void write_list(const List& list, int depth) {
    plain("[");
    for (std::size_t i = 0; i < list.items.size() && !error_; ++i) {
      if (i > 0) plain(style_.item_separator);
      new_line(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) new_line(depth);
    plain("]");
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<std::pair<OriginText, const Value*>> entries;
    for (const auto& [key, value] : dict.entries()) {
      std::optional<std::string> scalar = scalar_text(key);
      if (key.text() == nullptr && !scalar) {
        return fail(Error{
            fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key))});
      }
      entries.emplace_back(scalar ? OriginText(*std::move(scalar), false) : *key.text(), &value);
    }
    if (style_.sorted) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.first.bytes() < b.first.bytes();
      });
    }
    plain("{");
    for (std::size_t i = 0; i < entries.size() && !error_; ++i) {
      if (i > 0) plain(style_.item_separator);
      new_line(depth + 1);
      write_text(entries[i].first);
      plain(style_.key_separator);
      write(*entries[i].second, depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    plain("}");
  }

  void write_text(const OriginText& text) {
    plain("\"");
    const std::string& bytes = text.bytes();
    std::size_t copied = 0;  // everything before it is written
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = at + character_bytes(bytes[at]);
      const std::string escape = escape_of(code_point_at(bytes, at));
      if (!escape.empty()) {
        out_.append(text, copied, at);
        plain(escape);
        copied = end;
      }
      at = end;
    }
    out_.append(text, copied, text.size());
    plain("\"");
  }

  // Empty where the character is written as it is.
  std::string escape_of(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    const auto value = static_cast<std::uint32_t>(c);
    if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000)) {
      return c == 0x7F ? "" : fmt::format("\\u{:04x}", value);
    }
    if (!style_.ascii || c < 0x10000) return "";
    const std::uint32_t pair = value - 0x10000;  // UTF-16
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
  }

  const JsonStyle& style_;
  OriginText out_;
  std::optional<Error> error_;
};

}  // namespace

Result<Value> value_of_json(const nlohmann::ordered_json& json) { return converted(json, 0); }

Result<OriginText> json_text(const Value& value, const JsonStyle& style) {
  return Writer(style).run(value);
}

}  // namespace replayssm::jinja
