// What the formats of tool calls have in common: a scanner over the text after `<tool_call>`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/tool_call_parser.h"

namespace replayssm {

inline constexpr std::string_view kJsonWhitespace = " \t\r\n";

// Where the whitespace that begins at `at` ends.
inline std::size_t skip_whitespace(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(kJsonWhitespace, at), text.size());
}

// How the text at `at` compares with a tag that is expected there.
enum class TagMatch { yes, no, more_text_needed };

inline TagMatch match_tag(std::string_view text, std::size_t at, std::string_view tag) {
  const std::string_view rest = text.substr(at, tag.size());
  if (rest == tag) return TagMatch::yes;
  return tag.starts_with(rest) ? TagMatch::more_text_needed : TagMatch::no;
}

// A scanner of one call at a time. It remembers how far it got, so that a call is read once
// however often more text arrives.
class ToolCallFormat {
 public:
  enum class Verdict { more_text_needed, call, malformed };

  struct Scan {
    Verdict verdict = Verdict::more_text_needed;
    // Bytes of `body` that are decided: the call with its closing tag, or the text that shows that
    // this is none.
    std::size_t consumed = 0;
    std::string name;
    std::string arguments;  // one JSON object
  };

  virtual ~ToolCallFormat() = default;

  // Forgets the call before.
  virtual void begin() = 0;

  // `body` is the text after `<tool_call>`: what the previous scan() saw, and more. `last`: there
  // will be no more; the verdict is then never more_text_needed.
  virtual Scan scan(std::string_view body, bool last) = 0;
};

std::unique_ptr<ToolCallFormat> make_qwen_xml_format(const nlohmann::ordered_json& tools);
std::unique_ptr<ToolCallFormat> make_hermes_json_format();

}  // namespace replayssm
