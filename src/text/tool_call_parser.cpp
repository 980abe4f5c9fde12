#include "text/tool_call_parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "text/tool_call_parser_format.h"

namespace replayssm {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection, so ids differ where their
// inputs do.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::string call_id(std::uint64_t seed, int index) {
  const std::uint64_t high = mix(seed);
  const std::uint64_t low =
      mix(high + 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(index) + 1));
  return fmt::format("call_{:08x}{:016x}", static_cast<std::uint32_t>(high), low);
}

// Bytes at the end of `text` that may begin `<tool_call>`.
std::size_t open_tag_tail(std::string_view text) {
  for (std::size_t n = std::min(text.size(), kToolCallOpen.size() - 1); n > 0; --n) {
    if (text.ends_with(kToolCallOpen.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

std::vector<std::string_view> ToolCallParser::formats() { return {"qwen3_coder", "hermes"}; }

Result<ToolCallParser> ToolCallParser::make(std::string_view format,
                                            const nlohmann::ordered_json& tools,
                                            std::uint64_t id_seed) {
  if (format == "qwen3_coder") return ToolCallParser(make_qwen_xml_format(tools), id_seed);
  if (format == "hermes") return ToolCallParser(make_hermes_json_format(), id_seed);
  return refuse("tool-call-parser", format, fmt::format("{}", fmt::join(formats(), ", ")));
}

ToolCallParser::ToolCallParser(std::unique_ptr<ToolCallFormat> format, std::uint64_t id_seed)
    : format_(std::move(format)), id_seed_(id_seed) {}
ToolCallParser::ToolCallParser(ToolCallParser&&) noexcept = default;
ToolCallParser& ToolCallParser::operator=(ToolCallParser&&) noexcept = default;
ToolCallParser::~ToolCallParser() = default;

void ToolCallParser::emit_content(std::size_t bytes, std::vector<ToolCallEvent>& events) {
  if (bytes == 0) return;
  if (events.empty() || events.back().kind != ToolCallEvent::Kind::content) events.emplace_back();
  events.back().text.append(pending_, 0, bytes);
  pending_.erase(0, bytes);
  content_since_call_ = true;
}

bool ToolCallParser::step(bool last, std::vector<ToolCallEvent>& events) {
  if (!in_call_) {
    const std::size_t open = pending_.find(kToolCallOpen);
    const bool found = open != std::string::npos;
    // Whitespace stays with what follows it: it is content only if that is.
    std::size_t certain = found ? open : pending_.size() - open_tag_tail(pending_);
    while (certain > 0 && kJsonWhitespace.find(pending_[certain - 1]) != std::string_view::npos) {
      --certain;
    }
    emit_content(certain, events);
    if (!found) return false;
    body_ = open - certain + kToolCallOpen.size();
    in_call_ = true;
    format_->begin();
  }
  const ToolCallFormat::Scan scan = format_->scan(std::string_view(pending_).substr(body_), last);
  if (scan.verdict == ToolCallFormat::Verdict::more_text_needed) return false;
  in_call_ = false;
  if (scan.verdict == ToolCallFormat::Verdict::malformed) {
    emit_content(body_ + scan.consumed, events);
    return true;
  }
  pending_.erase(0, body_ + scan.consumed);
  using Kind = ToolCallEvent::Kind;
  events.push_back({Kind::begin, calls_, call_id(id_seed_, calls_), scan.name, {}});
  events.push_back({Kind::arguments, calls_, {}, {}, scan.arguments});
  events.push_back({Kind::end, calls_, {}, {}, {}});
  ++calls_;
  content_since_call_ = false;
  return true;
}

std::vector<ToolCallEvent> ToolCallParser::push(std::string_view text) {
  std::vector<ToolCallEvent> events;
  pending_ += text;
  while (step(false, events)) {
  }
  return events;
}

std::vector<ToolCallEvent> ToolCallParser::finish() {
  std::vector<ToolCallEvent> events;
  while (step(true, events)) {
  }
  const bool only_whitespace = skip_whitespace(pending_, 0) == pending_.size();
  if (only_whitespace && calls_ > 0 && !content_since_call_) pending_.clear();
  emit_content(pending_.size(), events);
  return events;
}

}  // namespace replayssm
