#include "text/reasoning_parser.h"

#include <algorithm>
#include <cstddef>

namespace replayssm {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kLineBreaks = "\r\n";
constexpr std::string_view kWhitespace = " \t\r\n";

// Whether `text` is a proper beginning of `tag`, the empty text included.
bool may_become(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

// Bytes at the end of `text` that may begin `tag`.
std::size_t tag_tail(std::string_view text, std::string_view tag) {
  for (std::size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

std::size_t first_not_of(std::string_view text, std::string_view set) {
  return std::min(text.find_first_not_of(set), text.size());
}

}  // namespace

ReasoningParser::ReasoningParser(Start start)
    : phase_(start == Start::in_reasoning ? Phase::opening : Phase::before) {}

bool ReasoningParser::step(ReasoningDelta& out) {
  switch (phase_) {
    case Phase::before: {
      const std::size_t skip = first_not_of(pending_, kWhitespace);
      const std::string_view rest = std::string_view(pending_).substr(skip);
      if (rest.starts_with(kOpen)) {
        pending_.erase(0, skip + kOpen.size());
        phase_ = Phase::opening;
        return true;
      }
      if (may_become(rest, kOpen)) return false;
      phase_ = Phase::content;
      return true;
    }
    case Phase::opening: {
      const std::size_t skip = first_not_of(pending_, kLineBreaks);
      const std::string_view rest = std::string_view(pending_).substr(skip);
      // Some models repeat the tag that the prompt ended with.
      if (rest.starts_with(kOpen)) {
        pending_.erase(0, skip + kOpen.size());
        return true;
      }
      if (may_become(rest, kOpen)) return false;
      pending_.erase(0, skip);
      phase_ = Phase::reasoning;
      return true;
    }
    case Phase::reasoning: {
      const std::size_t close = pending_.find(kClose);
      std::size_t certain = close;
      if (close == std::string::npos) certain = pending_.size() - tag_tail(pending_, kClose);
      // The line breaks before the tag are part of it.
      std::size_t end = certain;
      while (end > 0 && kLineBreaks.find(pending_[end - 1]) != std::string_view::npos) --end;
      out.reasoning.append(pending_, 0, end);
      if (close == std::string::npos) {
        pending_.erase(0, end);
        return false;
      }
      pending_.erase(0, close + kClose.size());
      phase_ = Phase::closing;
      return true;
    }
    case Phase::closing: {
      pending_.erase(0, first_not_of(pending_, kLineBreaks));
      if (pending_.empty()) return false;
      phase_ = Phase::content;
      return true;
    }
    case Phase::content: {
      out.content += pending_;
      pending_.clear();
      return false;
    }
  }
  return false;
}

ReasoningDelta ReasoningParser::push(std::string_view text) {
  ReasoningDelta out;
  pending_ += text;
  while (step(out)) {
  }
  return out;
}

ReasoningDelta ReasoningParser::finish() {
  ReasoningDelta out;
  (in_reasoning() ? out.reasoning : out.content) = std::move(pending_);
  pending_.clear();
  phase_ = Phase::content;
  return out;
}

}  // namespace replayssm
