// Finds the tool calls in what a model writes.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm {

class ToolCallFormat;

// One step of an answer, in the order of the stream.
struct ToolCallEvent {
  enum class Kind {
    content,    // `text`: text for the person
    begin,      // `index`, `id`, `name`: a call starts
    arguments,  // `index`, `text`: more of the call's arguments, JSON text
    end,        // `index`: the call is complete; its arguments concatenate to one JSON object
  };

  Kind kind = Kind::content;
  int index = -1;  // of the call, from 0; -1 for content
  std::string id;
  std::string name;
  std::string text;

  bool operator==(const ToolCallEvent&) const = default;
};

// Around every call, in each format.
inline constexpr std::string_view kToolCallOpen = "<tool_call>";
inline constexpr std::string_view kToolCallClose = "</tool_call>";

// Splits an answer into content and tool calls. Formats, by the names of --tool-call-parser:
//
//   qwen3_coder  <tool_call>\n<function=NAME>\n<parameter=P>\nvalue\n</parameter>\n</function>\n
//                </tool_call>; values are raw text, typed by the tool's JSON schema
//   hermes       <tool_call>\n{"name": NAME, "arguments": {..}}\n</tool_call>
//
// A call is held until it is complete, because one that was begun cannot be taken back: text that
// turns out to be no well-formed call comes out as content, unchanged. Whitespace before a call,
// between calls and after the last belongs to the format, not to the content. A call that lacks
// nothing but `</tool_call>` at the end of the stream counts.
//
// Contents, calls and arguments are the same for every split of the input. Reasoning is split off
// first (ReasoningParser), so a call inside reasoning never gets here. One object a stream; not for
// two threads at a time.
class ToolCallParser {
 public:
  // `tools` is the request's list, [{"type": "function", "function": {"name", "parameters"}}, ..];
  // null and an empty list are accepted. It types the values of qwen3_coder: a string stays as it
  // is, other types are converted where the text allows, parameters without a schema are strings,
  // and a tool that is not listed is a call like any other. `id_seed` makes the ids: different
  // seeds, different ids. Refuses an unknown format.
  static Result<ToolCallParser> make(std::string_view format, const nlohmann::ordered_json& tools,
                                     std::uint64_t id_seed);

  // The names that make() accepts.
  static std::vector<std::string_view> formats();

  ToolCallParser(ToolCallParser&&) noexcept;
  ToolCallParser& operator=(ToolCallParser&&) noexcept;
  ~ToolCallParser();

  std::vector<ToolCallEvent> push(std::string_view text);
  std::vector<ToolCallEvent> finish();

  // Calls that have ended.
  int calls() const { return calls_; }

 private:
  ToolCallParser(std::unique_ptr<ToolCallFormat> format, std::uint64_t id_seed);

  // Takes what it can from the front of pending_; false when it needs more text first.
  bool step(bool last, std::vector<ToolCallEvent>& events);
  void emit_content(std::size_t bytes, std::vector<ToolCallEvent>& events);

  std::unique_ptr<ToolCallFormat> format_;
  std::uint64_t id_seed_;
  std::string pending_;   // seen, not decided
  std::size_t body_ = 0;  // inside a call: where it begins in pending_, after `<tool_call>`
  bool in_call_ = false;
  bool content_since_call_ = false;
  int calls_ = 0;
};

}  // namespace replayssm
