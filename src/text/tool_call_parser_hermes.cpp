// Hermes JSON: <tool_call>\n{"name": NAME, "arguments": {..}}\n</tool_call>
#include <optional>

#include "text/tool_call_parser_format.h"

namespace replayssm {
namespace {

using Json = nlohmann::ordered_json;

// Follows JSON text byte by byte, far enough to know where an object or array ends.
class NestingScanner {
 public:
  // False where the byte cannot be JSON outside of a string.
  bool take(char byte) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\') {
        escaped_ = true;
      } else if (byte == '"') {
        in_string_ = false;
      }
      return true;
    }
    if (byte == '"') in_string_ = true;
    if (byte == '{' || byte == '[') ++depth_;
    if (byte == '}' || byte == ']') --depth_;
    return byte != '<';
  }

  int depth() const { return depth_; }
  bool in_string() const { return in_string_; }

 private:
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// The text of the last member `key` of a valid JSON object, as it was written: a number keeps all
// of its digits, which a parsed value would not.
std::optional<std::string_view> raw_member(std::string_view object, std::string_view key) {
  std::optional<std::string_view> found;
  NestingScanner scanner;
  std::size_t key_begin = 0;
  std::string name;
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t value_begin = kNone;
  for (std::size_t i = 0; i < object.size(); ++i) {
    const char byte = object[i];
    const bool was_string = scanner.in_string();
    const bool separator = !was_string && scanner.depth() == 1 && (byte == ',' || byte == '}');
    if (separator && value_begin != kNone) {
      if (name == key) {
        std::size_t end = i;
        while (kJsonWhitespace.find(object[end - 1]) != std::string_view::npos) --end;
        const std::size_t begin = skip_whitespace(object, value_begin);
        found = object.substr(begin, end - begin);
      }
      value_begin = kNone;
    }
    scanner.take(byte);
    if (scanner.depth() != 1 || value_begin != kNone) continue;
    if (!was_string && scanner.in_string()) key_begin = i;
    if (was_string && !scanner.in_string()) {
      name = Json::parse(object.substr(key_begin, i + 1 - key_begin)).get<std::string>();
    }
    if (!was_string && byte == ':') value_begin = i + 1;
  }
  return found;
}

// Name and arguments of a call, nothing if `object` is no well-formed one. Arguments may be missing
// (none), or be the object's text as one JSON string.
bool read_call(std::string_view object, ToolCallFormat::Scan& scan) {
  const Json call = Json::parse(object, nullptr, false);
  if (!call.is_object()) return false;
  const auto name = call.find("name");
  if (name == call.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return false;
  }
  scan.name = name->get<std::string>();
  const auto arguments = call.find("arguments");
  if (arguments == call.end() || arguments->is_null()) {
    scan.arguments = "{}";
    return true;
  }
  if (arguments->is_string()) {
    scan.arguments = arguments->get<std::string>();
    return Json::parse(scan.arguments, nullptr, false).is_object();
  }
  if (!arguments->is_object()) return false;
  scan.arguments = raw_member(object, "arguments").value_or("{}");
  return true;
}

class HermesJsonFormat final : public ToolCallFormat {
 public:
  void begin() override {
    cursor_ = 0;
    object_begin_.reset();
    scanner_ = {};
  }

  Scan scan(std::string_view body, bool last) override {
    if (!object_begin_) {
      const std::size_t begin = skip_whitespace(body, 0);
      if (begin == body.size()) return last ? malformed(begin) : Scan{};
      if (body[begin] != '{') return malformed(0);
      object_begin_ = cursor_ = begin;
      scanner_.take(body[cursor_++]);
    }
    for (; scanner_.depth() > 0; ++cursor_) {
      if (cursor_ == body.size()) return last ? malformed(cursor_) : Scan{};
      if (!scanner_.take(body[cursor_])) return malformed(cursor_);
    }
    const std::size_t tag = skip_whitespace(body, cursor_);
    const TagMatch match = match_tag(body, tag, kToolCallClose);
    if (match == TagMatch::more_text_needed && !last) return {};
    const bool cut_off = last && tag == body.size();
    if (match != TagMatch::yes && !cut_off) return malformed(cursor_);
    Scan call;
    call.consumed = cut_off ? tag : tag + kToolCallClose.size();
    const std::string_view object = body.substr(*object_begin_, cursor_ - *object_begin_);
    call.verdict = read_call(object, call) ? Verdict::call : Verdict::malformed;
    return call;
  }

 private:
  static Scan malformed(std::size_t consumed) { return {Verdict::malformed, consumed, {}, {}}; }

  std::size_t cursor_ = 0;  // first byte that is not scanned yet
  std::optional<std::size_t> object_begin_;
  NestingScanner scanner_;
};

}  // namespace

std::unique_ptr<ToolCallFormat> make_hermes_json_format() {
  return std::make_unique<HermesJsonFormat>();
}

}  // namespace replayssm
