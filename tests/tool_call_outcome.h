// What a whole stream of tool call events amounts to.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_call_parser.h"

namespace replayssm::testing {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct ToolCallOutcome {
  std::string content;
  std::vector<Call> calls;
  bool operator==(const ToolCallOutcome&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const ToolCallOutcome& outcome) {
  out << "content \"" << outcome.content << '"';
  for (const Call& call : outcome.calls) out << "\n  " << call.name << ' ' << call.arguments;
  return out;
}

// Checks the order of events as it goes: begin, arguments, end with one index; ids that differ;
// arguments that are JSON objects.
class ToolCallCollector {
 public:
  void add(const std::vector<ToolCallEvent>& events) {
    using Kind = ToolCallEvent::Kind;
    for (const ToolCallEvent& event : events) {
      if (event.kind == Kind::content) {
        EXPECT_FALSE(open_);
        EXPECT_EQ(event.index, -1);
        EXPECT_FALSE(event.text.empty());
        outcome_.content += event.text;
        continue;
      }
      if (event.kind == Kind::begin) {
        EXPECT_FALSE(open_);
        EXPECT_EQ(event.index, static_cast<int>(outcome_.calls.size()));
        EXPECT_TRUE(event.id.starts_with("call_"));
        for (const std::string& id : ids_) EXPECT_NE(event.id, id);
        ids_.push_back(event.id);
        outcome_.calls.push_back({event.name, ""});
        open_ = true;
        continue;
      }
      EXPECT_TRUE(open_);
      EXPECT_EQ(event.index, static_cast<int>(outcome_.calls.size()) - 1);
      if (event.kind == Kind::arguments) outcome_.calls.back().arguments += event.text;
      if (event.kind == Kind::end) {
        open_ = false;
        const std::string& arguments = outcome_.calls.back().arguments;
        EXPECT_TRUE(nlohmann::json::parse(arguments, nullptr, false).is_object()) << arguments;
      }
    }
  }

  const ToolCallOutcome& outcome() const {
    EXPECT_FALSE(open_);
    return outcome_;
  }

 private:
  ToolCallOutcome outcome_;
  std::vector<std::string> ids_;
  bool open_ = false;
};

inline ToolCallOutcome parse_tool_calls(const std::vector<std::string>& pieces,
                                        std::string_view format,
                                        const nlohmann::ordered_json& tools) {
  ToolCallParser parser = std::move(ToolCallParser::make(format, tools, 1)).value();
  ToolCallCollector collector;
  for (const std::string& piece : pieces) collector.add(parser.push(piece));
  collector.add(parser.finish());
  return collector.outcome();
}

}  // namespace replayssm::testing
