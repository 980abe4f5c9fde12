// Any bytes through the parsers of a model's output: nothing is lost, nothing depends on the split,
// arguments are JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/reasoning_parser.h"
#include "text/stop_matcher.h"
#include "text/tool_call_parser.h"

namespace {

using replayssm::ReasoningParser;
using replayssm::StopMatcher;
using replayssm::ToolCallEvent;
using replayssm::ToolCallParser;

void require(bool condition) {
  if (!condition) std::abort();
}

// Pieces of 1 to 7 bytes, their lengths drawn from the text itself.
std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = 1 + static_cast<unsigned char>(text[at]) % 7;
    pieces.push_back(text.substr(at, length));
    at += length;
  }
  return pieces;
}

std::string stopped(const std::vector<std::string_view>& pieces) {
  StopMatcher matcher = StopMatcher::make({"END", "\n\n", "</"}).value();
  std::string out;
  for (const std::string_view piece : pieces) out += matcher.push(piece);
  return out + matcher.finish() + '|' + matcher.matched().value_or("");
}

std::string reasoned(const std::vector<std::string_view>& pieces, ReasoningParser::Start start) {
  ReasoningParser parser(start);
  std::string reasoning;
  std::string content;
  const auto add = [&](const replayssm::ReasoningDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
  };
  for (const std::string_view piece : pieces) add(parser.push(piece));
  add(parser.finish());
  return reasoning + '\x01' + content;
}

std::string called(const std::vector<std::string_view>& pieces, std::string_view format,
                   std::string_view text) {
  ToolCallParser parser = std::move(ToolCallParser::make(format, nullptr, 1)).value();
  std::string out;
  std::string content;
  std::string arguments;
  const auto add = [&](const std::vector<ToolCallEvent>& events) {
    for (const ToolCallEvent& event : events) {
      if (event.kind == ToolCallEvent::Kind::content) content += event.text;
      if (event.kind == ToolCallEvent::Kind::begin) out += event.id + event.name;
      if (event.kind == ToolCallEvent::Kind::arguments) arguments += event.text;
      if (event.kind != ToolCallEvent::Kind::end) continue;
      require(nlohmann::json::parse(arguments, nullptr, false).is_object());
      out += arguments;
      arguments.clear();
    }
  };
  for (const std::string_view piece : pieces) add(parser.push(piece));
  add(parser.finish());
  if (parser.calls() == 0) require(content == text);
  return out + '\x01' + content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string_view> whole = {text};
  const std::vector<std::string_view> pieces = pieces_of(text);
  require(stopped(whole) == stopped(pieces));
  for (const auto start :
       {ReasoningParser::Start::in_content, ReasoningParser::Start::in_reasoning}) {
    require(reasoned(whole, start) == reasoned(pieces, start));
  }
  for (const std::string_view format : ToolCallParser::formats()) {
    require(called(whole, format, text) == called(pieces, format, text));
  }
  return 0;
}
