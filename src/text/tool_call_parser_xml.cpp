// Qwen3-Coder's and Qwen3.5's XML-like form:
//   <tool_call>\n<function=NAME>\n<parameter=P>\nvalue\n</parameter>\n</function>\n</tool_call>
// Values are raw text, nothing in them is escaped. So `</parameter>` ends a value only where the
// structure goes on behind it; any other `</parameter>` is part of the value.
#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "text/tool_call_parser_format.h"
#include "text/tool_call_parser_values.h"

namespace replayssm {
namespace {

constexpr std::string_view kFunctionOpen = "<function=";
constexpr std::string_view kFunctionClose = "</function>";
constexpr std::string_view kParameterOpen = "<parameter=";
constexpr std::string_view kParameterClose = "</parameter>";

class QwenXmlFormat final : public ToolCallFormat {
 public:
  explicit QwenXmlFormat(const nlohmann::ordered_json& tools) : schemas_(tools) {}

  void begin() override {
    phase_ = Phase::function;
    cursor_ = 0;
    name_.clear();
    arguments_.clear();
  }

  Scan scan(std::string_view body, bool last) override {
    while (true) {
      Step step = Step::more_text_needed;
      switch (phase_) {
        case Phase::function:
          step = function(body);
          break;
        case Phase::parameters:
          step = parameters(body);
          break;
        case Phase::value:
          step = value(body);
          break;
        case Phase::end:
          step = end(body, last);
          break;
      }
      if (step == Step::on) continue;
      if (step == Step::malformed) return {Verdict::malformed, cursor_, {}, {}};
      if (step == Step::done) return {Verdict::call, cursor_, name_, arguments_object()};
      if (last) return {Verdict::malformed, body.size(), {}, {}};
      return {};
    }
  }

 private:
  enum class Phase { function, parameters, value, end };
  enum class Step { on, more_text_needed, malformed, done };

  // Reads `NAME>` at `at`; on success the cursor is behind it.
  Step read_name(std::string_view body, std::size_t at, std::string& name) {
    const std::size_t end = body.find_first_of("<>\r\n", at);
    if (end == std::string_view::npos) return Step::more_text_needed;
    if (body[end] != '>' || end == at) return Step::malformed;
    name = body.substr(at, end - at);
    cursor_ = end + 1;
    return Step::on;
  }

  Step function(std::string_view body) {
    const std::size_t tag = skip_whitespace(body, 0);
    const TagMatch match = match_tag(body, tag, kFunctionOpen);
    if (match == TagMatch::more_text_needed) return Step::more_text_needed;
    if (match == TagMatch::no) return Step::malformed;
    const Step step = read_name(body, tag + kFunctionOpen.size(), name_);
    if (step == Step::on) phase_ = Phase::parameters;
    return step;
  }

  Step parameters(std::string_view body) {
    const std::size_t tag = skip_whitespace(body, cursor_);
    const TagMatch open = match_tag(body, tag, kParameterOpen);
    if (open == TagMatch::yes) {
      const Step step = read_name(body, tag + kParameterOpen.size(), parameter_);
      if (step != Step::on) return step;
      phase_ = Phase::value;
      value_begin_ = cursor_;
      return step;
    }
    const TagMatch close = match_tag(body, tag, kFunctionClose);
    if (close == TagMatch::yes) {
      cursor_ = tag + kFunctionClose.size();
      phase_ = Phase::end;
      return Step::on;
    }
    const bool undecided =
        open == TagMatch::more_text_needed || close == TagMatch::more_text_needed;
    return undecided ? Step::more_text_needed : Step::malformed;
  }

  // Looks for the end of the value from the cursor on.
  Step value(std::string_view body) {
    const std::size_t close = body.find("</", cursor_);
    if (close == std::string_view::npos) {
      cursor_ = body.size() - (body.size() > cursor_ && body.back() == '<' ? 1 : 0);
      return Step::more_text_needed;
    }
    cursor_ = close;
    const TagMatch parameter = match_tag(body, close, kParameterClose);
    const TagMatch function = match_tag(body, close, kFunctionClose);
    if (parameter == TagMatch::more_text_needed || function == TagMatch::more_text_needed) {
      return Step::more_text_needed;
    }
    const std::size_t behind =
        close + (parameter == TagMatch::yes ? kParameterClose.size() : kFunctionClose.size());
    bool undecided = false;
    const auto followed_by = [&](std::string_view tag) {
      const std::size_t at = skip_whitespace(body, behind);
      const TagMatch match = match_tag(body, at, tag);
      undecided |= match == TagMatch::more_text_needed;
      if (match == TagMatch::yes && tag == kToolCallClose) cursor_ = at + tag.size();
      return match == TagMatch::yes;
    };
    if (parameter == TagMatch::yes &&
        (followed_by(kParameterOpen) || followed_by(kFunctionClose))) {
      store(body.substr(value_begin_, close - value_begin_));
      cursor_ = behind;
      phase_ = Phase::parameters;
      return Step::on;
    }
    // The call is over, but the parameter or the function was never closed.
    if ((parameter == TagMatch::yes || function == TagMatch::yes) && followed_by(kToolCallClose)) {
      return Step::malformed;
    }
    if (undecided) return Step::more_text_needed;
    cursor_ = close + 2;
    return Step::on;
  }

  Step end(std::string_view body, bool last) {
    const std::size_t tag = skip_whitespace(body, cursor_);
    const TagMatch match = match_tag(body, tag, kToolCallClose);
    if (match == TagMatch::no) return Step::malformed;
    if (match == TagMatch::yes) {
      cursor_ = tag + kToolCallClose.size();
      return Step::done;
    }
    if (!last || tag != body.size()) return Step::more_text_needed;
    cursor_ = tag;
    return Step::done;
  }

  // One line break on either side of a value is the format's. Of a repeated parameter the last
  // value counts.
  void store(std::string_view text) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    std::string json = schemas_.to_json(name_, parameter_, text);
    for (auto& [name, value] : arguments_) {
      if (name != parameter_) continue;
      value = std::move(json);
      return;
    }
    arguments_.emplace_back(parameter_, std::move(json));
  }

  std::string arguments_object() const {
    std::string object = "{";
    for (const auto& [name, value] : arguments_) {
      if (object.size() > 1) object += ", ";
      using Json = nlohmann::ordered_json;
      object += Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ": " + value;
    }
    return object + "}";
  }

  ToolSchemas schemas_;
  Phase phase_ = Phase::function;
  std::size_t cursor_ = 0;  // everything before it is decided
  std::size_t value_begin_ = 0;
  std::string name_;
  std::string parameter_;
  std::vector<std::pair<std::string, std::string>> arguments_;  // name, JSON text
};

}  // namespace

std::unique_ptr<ToolCallFormat> make_qwen_xml_format(const nlohmann::ordered_json& tools) {
  return std::make_unique<QwenXmlFormat>(tools);
}

}  // namespace replayssm
